// Operations that have not ended: those no role holder has taken, and those in the background. Thread-safe.
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
  void submit(const OperationPtr& operation);  // throws Aborted after stop()
  // With the role: moves submitted ones to `arrived`; with `only`, if no other is there. False: none moved.
  bool take(std::vector<OperationPtr>& arrived, const Operation* only);
  void hurry(Operation& operation);   // the progress thread must not leave it to its caller
  void remove(Operation& operation);  // by the thread that ended it

  void stop();  // permanent
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // Any background operation of a group, or of all; null: none. Allocates nothing.
  OperationPtr next_of(const GroupState* group) const;
  // The lowest sequence number of a background operation on the channel, `next` if there is none.
  std::uint64_t first_sequence(const GroupState& group, Channel channel, std::uint64_t next) const;

  int background() const { return background_.load(std::memory_order_seq_cst); }
  int urgent() const { return urgent_.load(std::memory_order_seq_cst); }
  int on_device() const { return on_device_.load(std::memory_order_relaxed); }

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();  // ticks of Clock
  std::int64_t earliest_deadline() const {
    return std::min(taken_deadline_.load(std::memory_order_relaxed),
                    intake_deadline_.load(std::memory_order_relaxed));
  }
  // With the role.
  void set_taken_deadline(std::int64_t ticks) { taken_deadline_.store(ticks, std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;  // intake_, unfinished_, and setting stopped_
  std::vector<OperationPtr> intake_;
  std::unordered_map<const Operation*, OperationPtr> unfinished_;  // background operations
  std::atomic<bool> intake_filled_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<int> background_{0}, urgent_{0}, on_device_{0};
  std::atomic<std::int64_t> taken_deadline_{kNever}, intake_deadline_{kNever};
};

}  // namespace mpi_gdr
