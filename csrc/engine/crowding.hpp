// Whether this process shares its cores: counted at the start, and measured, as counts miss containers.
#pragma once

#include <atomic>
#include <chrono>

namespace mpi_gdr {

class Crowding {  // one per engine; thread-safe
 public:
  using Clock = std::chrono::steady_clock;
  explicit Crowding(bool counted) : counted_(counted) {}  // `counted`: more ranks than cores.
  bool counted() const { return counted_; }

  void yielded(Clock::time_point begin, Clock::time_point end) {
    if (end - begin > kUncontended) remember(shared_until_, end + kRemembered);
    if (end - begin > kSlice) remember(slices_until_, end + kRemembered);
  }
  // Another thread wants the cores; slices(): and keeps them for whole time slices.
  bool shared(Clock::time_point now) const { return counted_ || before(now, shared_until_); }
  bool slices(Clock::time_point now) const { return before(now, slices_until_); }

  // Spinning on shared cores pays if the awaited rank runs elsewhere: recent waits decide; some try again.
  bool spins(Clock::time_point now) const {
    return !shared(now) || misses_.load(std::memory_order_relaxed) % kTryAgain == 0;
  }
  void met() {  // a wait ended while spinning; missed(): later
    if (misses_.load(std::memory_order_relaxed) != 0) misses_.store(0, std::memory_order_relaxed);
  }
  void missed() { misses_.fetch_add(1, std::memory_order_relaxed); }

 private:
  using Until = std::atomic<Clock::rep>;  // ticks of Clock
  static void remember(Until& until, Clock::time_point end) {
    until.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  }
  static bool before(Clock::time_point now, const Until& until) {
    return now.time_since_epoch().count() < until.load(std::memory_order_relaxed);
  }

  // Longer than a yield without a taker, shorter than two process switches.
  static constexpr std::chrono::microseconds kUncontended{2};
  // Shorter than any Linux time slice, longer than a rank's work between two waits.
  static constexpr std::chrono::microseconds kSlice{1000};
  static constexpr std::chrono::milliseconds kRemembered{20};
  static constexpr unsigned kTryAgain = 16;
  const bool counted_;
  Until shared_until_{0}, slices_until_{0};
  std::atomic<unsigned> misses_{0};
};

}  // namespace mpi_gdr
