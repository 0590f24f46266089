// The operations of a process that were issued and have not ended: those on their way to the holder of the
// progress role, and those in the background. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/operation.hpp"

namespace mpi_gdr {

class Outstanding {
 public:
  // Throws Aborted once stopped.
  void submit(const OperationPtr& operation);
  // Moves what was submitted to `arrived`; with `only`, if that is all there is. False: nothing was moved.
  bool take(std::vector<OperationPtr>& arrived, const Operation* only);
  // The progress thread shall not leave the operation to its caller.
  void hurry(Operation& operation);
  // By whoever ended it.
  void remove(Operation& operation);

  void stop();  // for good
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // One of those in the background, of one group or of all; null if there is none. Allocates nothing.
  OperationPtr next_of(const GroupState* group) const;
  // The first sequence number of the channel below `next` that one of them has.
  std::uint64_t first_sequence(const GroupState& group, Channel channel, std::uint64_t next) const;

  // Operations in the background, and how many of them hurry().
  int background() const { return background_.load(std::memory_order_seq_cst); }
  int urgent() const { return urgent_.load(std::memory_order_seq_cst); }
  // That a device works on.
  int on_device() const { return on_device_.load(std::memory_order_relaxed); }

  // In ticks of Clock: the earliest deadline of what nobody has taken, and of what the role holder has.
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t earliest_deadline() const {
    return std::min(taken_deadline_.load(std::memory_order_relaxed),
                    intake_deadline_.load(std::memory_order_relaxed));
  }
  // By the role holder.
  void set_taken_deadline(std::int64_t ticks) { taken_deadline_.store(ticks, std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;  // intake_, unfinished_, and setting stopped_
  std::vector<OperationPtr> intake_;
  std::unordered_map<const Operation*, OperationPtr> unfinished_;  // in the background
  std::atomic<bool> intake_filled_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<int> background_{0}, urgent_{0}, on_device_{0};
  std::atomic<std::int64_t> taken_deadline_{kNever}, intake_deadline_{kNever};
};

}  // namespace mpi_gdr
