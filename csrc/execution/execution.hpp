// One running schedule. The engine polls it; who owns what:
//  - constructed and launched on the issuing thread,
//  - advance() is called by the holder of the progress role only, never concurrently with itself,
//  - destroyed by the thread that drops the operation, after completion, or never (leaked on purpose) after a
//  failure.
#pragma once

#include <cstdint>
#include <vector>

#include "execution/observer.hpp"
#include "execution/rivals.hpp"
#include "schedule/schedule.hpp"
#include "transport/doorbell.hpp"
#include "transport/shm/node_memory.hpp"
#include "transport/transport.hpp"

namespace mpi_gdr {

// Where the buffers of a schedule are, and what its messages are stamped with.
struct Binding {
  const void* input = nullptr;
  void* output = nullptr;
  void* scratch = nullptr;
  void* bounce = nullptr;
  DataType dtype = DataType::UInt8;
  ReduceOp op = ReduceOp::Sum;
  double factor = 1.0;        // PreMulSum
  std::uint32_t divisor = 1;  // Avg: size of the group
  bool exact = false;         // ReduceArgs::exact of each Reduce
  Channel channel = Channel::Collective;
  int tag_base = 0;  // message tag = tag_base + lane; its acknowledgement: kMaxLanes higher
  // A send is done only once the receiver has said so: back-pressure for one-way collectives. Equal on all
  // ranks.
  bool acknowledged = false;
  // Of a schedule that touches others' memory.
  const shm::NodeMemory* node = nullptr;
  std::uint64_t slot_use = 0;  // uses of slots on this channel before; equal on all ranks
  RivalChoices::Call rivals;   // of a schedule with Schedule::staged
  CallRecord call;             // compared with the others' before their memory is touched
  // The same for AllToAll, by rank; empty for others.
  std::vector<std::uint64_t> send_counts, recv_counts;
  ExecutionObserver* observer = nullptr;  // null: none
};

inline constexpr int kHeaderTag = 2 * kMaxLanes;  // of call_check.hpp, from tag_base
inline constexpr int kTagsPerCollective = 2 * kMaxLanes + 1;

class Execution {
 public:
  virtual ~Execution() = default;
  // Does what can be done without blocking; true when everything is done. Throws mpi_gdr::Error.
  virtual bool advance() = 0;
  // Ranks that this rank still waits for, for the timeout message.
  virtual std::vector<int> pending_peers() const = 0;
  // What the last advance() found missing, if that is one flag of another process and nothing else: false if
  // there is no such flag.
  virtual bool doorbell(Doorbell& bell) const { return false; }
  // Its steps call no library, which may block whatever it promises.
  virtual bool keeps_to_memory() const { return false; }
  // Gives up outstanding requests. Buffers must then be leaked.
  virtual void abandon() noexcept = 0;
  // Nobody is missing: an earlier call of the group has to begin on all ranks before this one does.
  virtual bool awaits_turn() const { return false; }
  // What runs, where that is decided only once all ranks have begun; null: not yet, or it was fixed.
  const char* chosen() const { return chosen_; }
  // Rounds finished so far: tells the engine that something moved, so that it keeps polling eagerly.
  std::uint64_t rounds_done() const { return rounds_done_; }

 protected:
  std::uint64_t rounds_done_ = 0;
  const char* chosen_ = nullptr;
};

}  // namespace mpi_gdr
