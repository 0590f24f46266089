// The completion hook of a group: a function of the user's that hears of every operation that has ended.
//
// Threads: all members from any thread. The hook runs on a completer thread, one call at a time, in the order
// in which operations ended; it may take the GIL and may call collectives, but must not wait_until_idle().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace mpi_gdr::torch_binding {

class CompletionHooks : public std::enable_shared_from_this<CompletionHooks> {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  // Throws InvalidUsage if there is one already.
  void set(Hook hook);
  bool any() const { return any_.load(std::memory_order_acquire); }

  // One more operation of which the hook will hear; until the result is dropped, which run() does when the
  // hook has returned. Without run(), the operation never came to be, or no hook is left to call.
  std::shared_ptr<void> expect();
  // It has ended.
  void run(std::shared_ptr<c10d::WorkInfo> info, std::shared_ptr<void> expected);

  // Until all expected operations are through, or `patience` is over. Returns how many are not.
  int wait_until_idle(std::chrono::nanoseconds patience);

 private:
  std::mutex mutex_;  // all below; never held while the hook runs
  std::condition_variable idle_;
  std::shared_ptr<Hook> hook_;
  std::atomic<bool> any_{false};  // there is one, for good; read without the mutex
  std::deque<std::pair<std::shared_ptr<c10d::WorkInfo>, std::shared_ptr<void>>> queue_;
  int expected_ = 0;
  bool running_ = false;
};

}  // namespace mpi_gdr::torch_binding
