// One running schedule, polled by the engine. Constructed and launched on the issuing thread. advance() is
// called by the holder of the progress role only. Destroyed after completion by the thread that drops the
// operation; after a failure never (leaked on purpose).
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
  int tag_base = 0;  // message tag = tag_base + lane; of its acknowledgement: kMaxLanes higher
  // Sends wait for an acknowledgement: back-pressure for one-way collectives. Equal on all ranks.
  bool acknowledged = false;
  // For schedules that access other ranks' memory:
  const shm::NodeMemory* node = nullptr;
  std::uint64_t slot_use = 0;  // earlier uses of slots on this channel; equal on all ranks
  RivalChoices::Call rivals;   // for schedules with Schedule::staged
  CallRecord call;             // compared with the others' before their memory is accessed
  // For AllToAll, by rank; compared likewise.
  std::vector<std::uint64_t> send_counts, recv_counts;
  ExecutionObserver* observer = nullptr;  // null: none
};

inline constexpr int kHeaderTag = 2 * kMaxLanes;  // of CallHeader, relative to tag_base
inline constexpr int kTagsPerCollective = 2 * kMaxLanes + 1;

class Execution {
 public:
  virtual ~Execution() = default;
  // Makes progress without blocking; true once everything is done. Throws mpi_gdr::Error.
  virtual bool advance() = 0;
  // Ranks that this rank waits for, for the timeout message.
  virtual std::vector<int> pending_peers() const = 0;
  // The only flag of another process that the last advance() waited for; false: none, or not only a flag.
  virtual bool doorbell(Doorbell& bell) const { return false; }
  // Its steps call no library that may block.
  virtual bool uses_only_memory() const { return false; }
  // Abandons outstanding requests. Buffers must then be leaked.
  virtual void abandon() noexcept = 0;
  // True if no rank is missing, but an earlier call of the group has to begin on all ranks before this one.
  virtual bool awaits_turn() const { return false; }
  // The schedule that was chosen; null: not yet, or nothing to choose.
  const char* chosen() const { return chosen_; }
  // Rounds finished so far. While the number grows, the engine polls without pauses.
  std::uint64_t rounds_done() const { return rounds_done_; }

 protected:
  std::uint64_t rounds_done_ = 0;
  const char* chosen_ = nullptr;
};

}  // namespace mpi_gdr
