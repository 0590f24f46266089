// Compares a collective's call between all ranks of its group before its data is sent (MPI_GDR_DEBUG=DETAIL).
// Every rank sends a header to every other: in a relayed exchange, a rank without a call would block others'
// headers and could not be identified. Sizes that only two ranks can compare (all_to_all) travel in their
// headers; the verdicts go to all. Threads: as every Execution and Observer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/observer.hpp"
#include "execution/execution.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

// A call, sent as it is: all ranks run the same build on the same kind of machine, as for all messages.
struct CallHeader {
  static constexpr int kCalls = 16;
  struct Call {
    Collective collective;
    DataType dtype;
    ReduceOp op;
    std::uint8_t unused;
    std::int32_t root;
    std::uint64_t count;  // for uneven blocks: derived from a hash of theirs
    bool operator==(const Call&) const = default;
  };
  struct Pair {              // of an all_to_all, in bytes
    std::uint64_t to_you;    // from this header's sender to its receiver
    std::uint64_t from_you;  // in the other direction, as the sender expects
  };
  std::uint64_t sequence;
  std::uint64_t digest;  // of all calls, also beyond `call`
  std::uint32_t calls;
  char name[44];     // as called by the user, "all_reduce"
  char dtype[20];    // torch's name
  char detail[140];  // "float32[10] op=sum"
  Call call[kCalls];
  Pair pair[kCalls];
};

// Validates a header of another rank: terminates its texts; throws Error(Remote) for invalid enumerators.
void check_received(CallHeader& header, int rank);

class CallCheck : public Execution {
 public:
  // `dtype` is compared, `name` and `detail` are shown.
  CallCheck(const std::vector<const CollectiveSpec*>& calls, std::string_view name, std::string_view dtype,
            std::string_view detail, std::uint64_t sequence, Channel channel, int tag, Transport& transport);

  // Throws Mismatch on every rank, naming the calls of all, if they differ.
  bool advance() override;
  std::vector<int> pending_peers() const override;
  void abandon() noexcept override;

 private:
  struct Message {
    Request request;
    int peer;
    bool receive;
  };
  struct Verdict {  // of one rank on one pair
    std::uint32_t call;
    std::int32_t sender, receiver;  // sender < 0: no mismatch
    std::uint64_t sent, expected;
  };
  enum class Phase { Start, Headers, Verdicts, Done };

  void exchange(const void* to, void* from, std::size_t bytes, bool same_to_all);
  bool all_arrived();
  void compare_headers() const;
  void judge_pairs();
  void compare_verdicts() const;
  std::string text_of(const CallHeader& header, std::uint32_t call) const;

  const Channel channel_;
  const int tag_;
  Transport& transport_;
  const int rank_, size_;
  Phase phase_ = Phase::Start;
  bool pairs_ = false;                     // some call is an all_to_all
  std::vector<CallHeader> ours_, theirs_;  // by rank; ours_[r] goes to rank r
  std::vector<Verdict> verdicts_;          // by rank
  std::vector<Message> messages_;
};

class CallChecker : public Observer {
 public:
  std::unique_ptr<Execution> before(const Operation& operation, const std::vector<Call>& calls,
                                    Transport& transport, int tag) override;
  bool one_by_one() const override { return true; }
};

}  // namespace mpi_gdr
