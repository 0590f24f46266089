// Timeouts of torch and Python, in the engine's range.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/operation.hpp"

namespace mpi_gdr::torch_binding {

// 100 years: clocks count 292 years in nanoseconds, so sums do not overflow.
inline constexpr std::chrono::hours kLongestTimeout{24 * 365 * 100};

// At most kLongestTimeout, also for NaN and large negative values: torch counts microseconds in 64 bits,
// unchecked, so timedelta.max arrives as -185,000 years.
template <typename Rep, typename Period>
std::chrono::milliseconds bounded(std::chrono::duration<Rep, Period> timeout) {
  const bool fits = timeout > -kLongestTimeout && timeout < kLongestTimeout;
  return fits ? std::chrono::duration_cast<std::chrono::milliseconds>(timeout) : kLongestTimeout;
}

// Throws InvalidUsage below 1 ms.
template <typename Rep, typename Period>
std::chrono::milliseconds group_timeout(std::chrono::duration<Rep, Period> timeout) {
  const std::chrono::milliseconds checked = bounded(timeout);
  if (checked < std::chrono::milliseconds(1))
    fail(ErrorCode::InvalidUsage, "a group's timeout=", std::chrono::duration<double>(timeout).count(),
         " s, expected 1 ms or more");
  return checked;
}

// torch's addEphemeralTimeout: extends operations until the first one issued after it has ended. Thread-safe.
class TimeoutExtensions {
 public:
  void add(std::chrono::milliseconds more) {
    std::lock_guard lock(mutex_);
    extensions_.push_back({more, ++last_, nullptr});
    any_.store(true, std::memory_order_relaxed);
  }
  bool any() const { return any_.load(std::memory_order_relaxed); }
  struct Sum {  // for the next operation; `last`: for issued(), 0: none
    std::chrono::milliseconds timeout{0};
    std::uint64_t last = 0;
  };
  Sum sum() {
    std::lock_guard lock(mutex_);
    std::erase_if(extensions_, [](const Extension& e) { return e.first && e.first->finished(); });
    any_.store(!extensions_.empty(), std::memory_order_relaxed);
    Sum sum;
    for (const Extension& extension : extensions_)
      sum = {bounded(sum.timeout + extension.more), extension.number};
    return sum;
  }
  void issued(const OperationPtr& operation, std::uint64_t last) {
    std::lock_guard lock(mutex_);
    for (Extension& extension : extensions_)
      if (!extension.first && extension.number <= last) extension.first = operation;
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  struct Extension {
    std::chrono::milliseconds more;
    std::uint64_t number;
    OperationPtr first;  // null: not issued
  };
  std::vector<Extension> extensions_;  // by number
  std::uint64_t last_ = 0;
};

}  // namespace mpi_gdr::torch_binding
