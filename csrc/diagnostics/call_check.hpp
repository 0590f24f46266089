// Compares a collective's call between the ranks of its group before anything of it is sent
// (MPI_GDR_DEBUG=DETAIL). The leading part of an operation: its other parts start once this one is done.
//
// Every rank sends its header to every other one directly: 2 (p - 1) small messages per rank and call. A
// relayed exchange would be cheaper, but then a rank that calls nothing silences others, and no rank can tell
// which one it was; and a rank that leaves with an error could keep its peers from theirs. What only two
// ranks can compare (how much one sends to the other in an all_to_all) travels in the headers of that pair;
// its verdict goes to all in a second exchange.
//
// Threads: as every Execution and Observer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/observer.hpp"
#include "execution/execution.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

// One call as the other ranks see it. Fixed size, sent as it is: all ranks run the same build of this library
// on the same kind of machine, as the algorithms' messages assume as well.
struct CallHeader {
  static constexpr int kCalls = 16;
  struct Call {
    Collective collective;
    DataType dtype;
    ReduceOp op;
    std::uint8_t unused;
    std::int32_t root;
    std::uint64_t count;  // of all_gather and reduce_scatter with uneven blocks: a hash of the blocks
    bool operator==(const Call&) const = default;
  };
  struct Pair {              // of an all_to_all, in bytes:
    std::uint64_t to_you;    // what the sender of this header sends to its receiver,
    std::uint64_t from_you;  // and what it expects from it
  };
  std::uint64_t sequence;
  std::uint64_t digest;  // of all calls, also those that `call` has no room for
  std::uint32_t calls;
  char name[44];     // as the user called it, "all_reduce"
  char dtype[20];    // as torch calls it
  char detail[140];  // "float32[10] op=sum"
  Call call[kCalls];
  Pair pair[kCalls];
};

// Of another rank: its texts have an end then. Throws Error(Remote) where a number stands for nothing.
void check_received(CallHeader& header, int rank);

class CallCheck : public Execution {
 public:
  // `name`, `dtype` and `detail`: of the operation. `dtype` is compared, the others are shown.
  CallCheck(const std::vector<const CollectiveSpec*>& calls, std::string_view name, std::string_view dtype,
            std::string_view detail, std::uint64_t sequence, Channel channel, int tag, Transport& transport);

  // Throws Mismatch, naming what each rank called, on every rank, if the calls do not match.
  bool advance() override;
  // Exactly the ranks whose call has not come.
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
    std::int32_t sender, receiver;  // sender < 0: all is well
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
  std::vector<CallHeader> ours_, theirs_;  // one per rank; ours_[r] goes to rank r
  std::vector<Verdict> verdicts_;          // one per rank
  std::vector<Message> messages_;
};

// Has the engine run one before each collective.
class CallChecker : public Observer {
 public:
  std::unique_ptr<Execution> before(const Operation& operation, const std::vector<Call>& calls,
                                    Transport& transport, int tag) override;
  bool one_by_one() const override { return true; }
};

}  // namespace mpi_gdr
