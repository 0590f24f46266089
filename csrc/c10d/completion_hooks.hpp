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

class CompletionHooks {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  // Throws InvalidUsage if there is one already.
  void set(Hook hook);
  bool any() const { return any_.load(std::memory_order_acquire); }

  // One more operation, of which the hook will hear. If it goes without that, the operation never came to
  // be, or no hook is left to call. Any thread; tell() once.
  class Expected {
   public:
    explicit Expected(std::shared_ptr<CompletionHooks> hooks);
    ~Expected();
    Expected(const Expected&) = delete;
    Expected& operator=(const Expected&) = delete;
    // It has ended.
    void tell(std::shared_ptr<c10d::WorkInfo> info);

   private:
    const std::shared_ptr<CompletionHooks> hooks_;
    bool notified_ = false;  // by the thread that ends the operation; read by the last one that drops this
  };

  // Until the hook has returned for all operations that were expected, or `patience` is over. How many it has
  // not returned for.
  int wait_until_idle(std::chrono::nanoseconds patience);

 private:
  void run(std::shared_ptr<c10d::WorkInfo> info);

  mutable std::mutex mutex_;  // all below; never held while the hook runs
  std::condition_variable idle_;
  std::shared_ptr<Hook> hook_;
  std::atomic<bool> any_{false};  // there is one, for good; read without the mutex
  std::deque<std::shared_ptr<c10d::WorkInfo>> queue_;
  int expected_ = 0;  // not yet reported, or the hook has not returned
  bool running_ = false;
};

}  // namespace mpi_gdr::torch_binding
