#include "engine/outstanding.hpp"

#include <new>

#include "common/error.hpp"

namespace mpi_gdr {

void Outstanding::submit(const OperationPtr& operation) {
  std::lock_guard lock(mutex_);
  if (stopped_.load(std::memory_order_relaxed))
    fail(ErrorCode::Aborted, operation->info().name, ": the engine has been shut down");
  if (operation->background()) unfinished_.emplace(operation.get(), operation);
  try {
    intake_.push_back(operation);
  } catch (const std::bad_alloc&) {
    unfinished_.erase(operation.get());
    throw;
  }
  // Under the lock, before another thread can take and complete the operation: the progress thread sleeps
  // while the count is 0.
  if (operation->background()) background_.fetch_add(1, std::memory_order_seq_cst);
  if (operation->on_device()) on_device_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t deadline = operation->info().deadline.time_since_epoch().count();
  if (deadline < intake_deadline_.load(std::memory_order_relaxed))
    intake_deadline_.store(deadline, std::memory_order_relaxed);
  intake_filled_.store(true, std::memory_order_release);
}

bool Outstanding::take(std::vector<OperationPtr>& arrived, const Operation* only) {
  if (!intake_filled_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mutex_);
  if (only && (intake_.size() != 1 || intake_.front().get() != only)) return false;
  arrived.swap(intake_);
  intake_filled_.store(false, std::memory_order_relaxed);
  set_taken_deadline(earliest_deadline());
  intake_deadline_.store(kNever, std::memory_order_relaxed);
  return true;
}

void Outstanding::hurry(Operation& operation) {
  urgent_.fetch_add(1, std::memory_order_seq_cst);
  if (operation.urgent.exchange(true, std::memory_order_acq_rel))  // already urgent, or ended
    urgent_.fetch_sub(1, std::memory_order_seq_cst);
}

void Outstanding::remove(Operation& operation) {
  if (operation.background()) {
    {
      std::lock_guard lock(mutex_);
      unfinished_.erase(&operation);
    }
    background_.fetch_sub(1, std::memory_order_seq_cst);
  }
  if (operation.on_device()) on_device_.fetch_sub(1, std::memory_order_relaxed);
  if (operation.urgent.exchange(true, std::memory_order_acq_rel))
    urgent_.fetch_sub(1, std::memory_order_seq_cst);
}

void Outstanding::stop() {
  std::lock_guard lock(mutex_);
  stopped_.store(true, std::memory_order_release);
}

OperationPtr Outstanding::next_of(const GroupState* group) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, operation] : unfinished_)
    if ((!group || &operation->group() == group) && !operation->finished()) return operation;
  return nullptr;
}

std::uint64_t Outstanding::first_sequence(const GroupState& group, Channel channel,
                                          std::uint64_t next) const {
  std::lock_guard lock(mutex_);
  for (const auto& [key, operation] : unfinished_)
    if (&operation->group() == &group && operation->info().channel == channel)
      next = std::min(next, operation->info().sequence);
  return next;
}

}  // namespace mpi_gdr
