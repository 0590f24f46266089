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

namespace mpi_gdr::torch_binding {

class CompletionHooks : public std::enable_shared_from_this<CompletionHooks> {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  void set(Hook hook);  // throws InvalidUsage for a second one
  bool any() const { return any_.load(std::memory_order_acquire); }

  // Counts an operation as pending until the result is destroyed: after its hook, or if its issue fails.
  std::shared_ptr<void> expect();
  // Called when the operation has ended: calls the hook, or queues the call behind the running one.
  void run(std::shared_ptr<c10d::WorkInfo> info, std::shared_ptr<void> expected);

  // Returns the number of operations that are still pending after `patience`.
  int wait_until_idle(std::chrono::nanoseconds patience);

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
