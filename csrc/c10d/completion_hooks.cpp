#include "c10d/completion_hooks.hpp"

#include <utility>

#include "common/error.hpp"
#include "common/log.hpp"

namespace mpi_gdr::torch_binding {

void CompletionHooks::set(Hook hook) {
  std::lock_guard lock(mutex_);
  if (hook_)
    fail(ErrorCode::InvalidUsage,
         "register_on_completion_hook: this group has a hook already, expected at most one");
  hook_ = std::make_shared<Hook>(std::move(hook));
  any_.store(true, std::memory_order_release);
}

std::shared_ptr<void> CompletionHooks::expect() {
  std::unique_lock lock(mutex_);
  ++expected_;
  lock.unlock();
  return {this, [self = shared_from_this()](CompletionHooks*) {
            const std::lock_guard lock(self->mutex_);
            --self->expected_;
            self->idle_.notify_all();
          }};
}

void CompletionHooks::run(std::shared_ptr<c10d::WorkInfo> info, std::shared_ptr<void> expected) {
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

int CompletionHooks::wait_until_idle(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, patience, [&] { return expected_ == 0; });
  return expected_;
}

}  // namespace mpi_gdr::torch_binding
