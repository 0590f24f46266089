// Timeouts as torch and Python give them, in the range that the engine counts in.
#pragma once

#include <chrono>

#include "common/error.hpp"

namespace mpigdr::torch_binding {

// 100 years. Clocks count 292 years in nanoseconds: sums of a time and a timeout do not overflow.
inline constexpr std::chrono::hours kLongestTimeout{24 * 365 * 100};

// At most kLongestTimeout; so are NaN and what is far below 0: torch counts the microseconds of a timedelta
// in 64 bits, unchecked, and timedelta.max arrives as -185,000 years.
template <typename Rep, typename Period>
std::chrono::milliseconds bounded(std::chrono::duration<Rep, Period> timeout) {
  const bool fits = timeout > -kLongestTimeout && timeout < kLongestTimeout;
  return fits ? std::chrono::duration_cast<std::chrono::milliseconds>(timeout) : kLongestTimeout;
}

inline std::chrono::milliseconds bounded_seconds(double seconds) {
  return bounded(std::chrono::duration<double>(seconds));
}

// The same of a group. Throws InvalidUsage below 1 ms.
template <typename Rep, typename Period>
std::chrono::milliseconds group_timeout(std::chrono::duration<Rep, Period> timeout) {
  const std::chrono::milliseconds checked = bounded(timeout);
  if (checked < std::chrono::milliseconds(1))
    fail(ErrorCode::InvalidUsage, "a group's timeout=", std::chrono::duration<double>(timeout).count(),
         " s, expected 1 ms or more");
  return checked;
}

}  // namespace mpigdr::torch_binding
