// The completion hook of a group: a function of the user's that hears of every operation that has ended.
//
// Threads: all members from any thread. The hook runs on a completer thread, one call at a time, in the order
// in which operations ended; it may take the GIL and may call collectives, but must not wait_until_idle().
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace mpigdr::torch_binding {

class CompletionHooks {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  // Throws InvalidUsage if there is one already.
  void set(Hook hook);
  bool any() const;

  // One more operation will be told of. Then, when it has ended: told().
  void expect();
  void tell(std::shared_ptr<c10d::WorkInfo> info);
  // It never came to be.
  void withdraw();

  // Until the hook has returned for all operations that were expected, or `patience` is over. How many it has
  // not returned for.
  int wait_until_idle(std::chrono::nanoseconds patience);

 private:
  mutable std::mutex mutex_;  // all below; never held while the hook runs
  std::condition_variable idle_;
  std::shared_ptr<Hook> hook_;
  std::deque<std::shared_ptr<c10d::WorkInfo>> queue_;
  int expected_ = 0;  // not yet told, or the hook has not returned
  bool running_ = false;
};

}  // namespace mpigdr::torch_binding
