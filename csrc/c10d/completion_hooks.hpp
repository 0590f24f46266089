// The completion hook of a group, called after each operation, in no order.
//
// Thread-safe. The hook runs on completer threads, one call at a time; it may take the GIL and call
// collectives, but not wait_until_idle().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "common/error.hpp"
#include "common/log.hpp"

namespace mpi_gdr::torch_binding {

class CompletionHooks : public std::enable_shared_from_this<CompletionHooks> {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  void set(Hook hook) {  // throws InvalidUsage for a second one
    std::lock_guard lock(mutex_);
    if (hook_)
      fail(ErrorCode::InvalidUsage,
           "register_on_completion_hook: this group has a hook already, expected at most one");
    hook_ = std::make_shared<Hook>(std::move(hook));
    any_.store(true, std::memory_order_release);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }

  // Counts an operation as pending until the returned token is destroyed: after its hook or a failed issue.
  std::shared_ptr<void> expect() {
    std::unique_lock lock(mutex_);
    ++expected_;
    lock.unlock();
    return {this, [self = shared_from_this()](CompletionHooks*) {
              const std::lock_guard lock(self->mutex_);
              --self->expected_;
              self->idle_.notify_all();
            }};
  }
  // Called when the operation has ended: calls the hook, or queues the call behind the running one.
  void run(std::shared_ptr<c10d::WorkInfo> info, std::shared_ptr<void> expected) {
    std::unique_lock lock(mutex_);
    queue_.emplace_back(std::move(info), std::move(expected));
    if (running_) return;  // the running thread takes it next
    running_ = true;
    while (!queue_.empty()) {
      const std::shared_ptr<Hook> hook = hook_;
      auto [next, running] = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      try {
        (*hook)(std::move(next));
      } catch (const std::exception& e) {
        log(LogLevel::Warn, "COLL", "a completion hook threw: ", e.what());
      }
      running.reset();
      lock.lock();
    }
    running_ = false;
  }

  // Returns the number of operations that are still pending after `patience`.
  int wait_until_idle(std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, patience, [&] { return expected_ == 0; });
    return expected_;
  }

 private:
  std::mutex mutex_;  // guards all below; not held while the hook runs
  std::condition_variable idle_;
  std::shared_ptr<Hook> hook_;
  std::atomic<bool> any_{false};  // never reset; read without the mutex
  std::deque<std::pair<std::shared_ptr<c10d::WorkInfo>, std::shared_ptr<void>>> queue_;
  int expected_ = 0;
  bool running_ = false;
};

}  // namespace mpi_gdr::torch_binding
