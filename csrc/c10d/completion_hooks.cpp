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

CompletionHooks::Expected::Expected(std::shared_ptr<CompletionHooks> hooks) : hooks_(std::move(hooks)) {
  std::lock_guard lock(hooks_->mutex_);
  ++hooks_->expected_;
}

CompletionHooks::Expected::~Expected() {
  if (notified_) return;
  std::lock_guard lock(hooks_->mutex_);
  --hooks_->expected_;
  hooks_->idle_.notify_all();
}

void CompletionHooks::Expected::tell(std::shared_ptr<c10d::WorkInfo> info) {
  hooks_->run(std::move(info));
  notified_ = true;
}

void CompletionHooks::run(std::shared_ptr<c10d::WorkInfo> info) {
  std::unique_lock lock(mutex_);
  queue_.push_back(std::move(info));
  if (running_) return;  // the thread that runs the hook takes this one next
  running_ = true;
  while (!queue_.empty()) {
    const std::shared_ptr<Hook> hook = hook_;
    std::shared_ptr<c10d::WorkInfo> next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      (*hook)(std::move(next));
    } catch (const std::exception& e) {
      log(LogLevel::Warn, "COLL", "a completion hook threw: ", e.what());
    }
    lock.lock();
    --expected_;
  }
  running_ = false;
  idle_.notify_all();
}

int CompletionHooks::wait_until_idle(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, patience, [&] { return expected_ == 0; });
  return expected_;
}

}  // namespace mpi_gdr::torch_binding
