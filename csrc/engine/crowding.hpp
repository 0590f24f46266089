// Whether this process shares its cores: counted at the start, and measured, as counts miss other containers.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <utility>

namespace mpi_gdr {

class Crowding {  // one per engine; thread-safe
 public:
  using Clock = std::chrono::steady_clock;
  explicit Crowding(bool oversubscribed) : oversubscribed_(oversubscribed) {}  // more ranks than cores
  bool oversubscribed() const { return oversubscribed_; }

  // A thread polled and yielded from `begin` to `end`; `switched`: another thread ran on its core meanwhile.
  // One short switch does not count: it may be to a kernel thread, but seldom two within a time slice are.
  void yielded(Clock::time_point begin, Clock::time_point end, bool switched) {
    if (!switched) return;
    const bool again = before(begin, switched_until_), slice = end - begin > kSlice;
    remember(switched_until_, end + kSlice);
    if (slice) remember(slices_until_, end + kRemembered);
    if (slice || again) remember(shared_until_, end + kRemembered);
  }
  // shared(): other threads want the cores; yields_cost_slices(): they also keep them for whole time slices.
  bool shared(Clock::time_point now) const { return oversubscribed_ || before(now, shared_until_); }
  bool yields_cost_slices(Clock::time_point now) const { return before(now, slices_until_); }

  // Spinning on shared cores pays only if the awaited rank runs: not after a miss, except every kTryAgain-th.
  bool spins(Clock::time_point now) const {
    return !shared(now) || misses_.load(std::memory_order_relaxed) % kTryAgain == 0;
  }
  void spin_succeeded() {  // a wait ended while its thread spun; spin_failed(): it outlasted that
    if (misses_.load(std::memory_order_relaxed) != 0) misses_.store(0, std::memory_order_relaxed);
  }
  void spin_failed() { misses_.fetch_add(1, std::memory_order_relaxed); }

 private:
  using Until = std::atomic<Clock::rep>;  // ticks of Clock
  static void remember(Until& until, Clock::time_point end) {
    until.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  }
  static bool before(Clock::time_point now, const Until& until) {
    return now.time_since_epoch().count() < until.load(std::memory_order_relaxed);
  }

  // Shorter than any Linux time slice, longer than a rank's work between two waits.
  static constexpr std::chrono::microseconds kSlice{1000};
  static constexpr std::chrono::milliseconds kRemembered{20};
  static constexpr unsigned kTryAgain = 16;
  const bool oversubscribed_;
  Until shared_until_{0}, slices_until_{0}, switched_until_{0};
  std::atomic<unsigned> misses_{0};
};

class Yields {  // of one thread while it waits
 public:
  void begin() { switches_ = switches(); }
  // `since`: the thread has not slept from then on. Returns the time afterwards.
  Crowding::Clock::time_point yield(Crowding& crowding, Crowding::Clock::time_point since) {
    sched_yield();
    const Crowding::Clock::time_point now = Crowding::Clock::now();
    if (now - since <= kUncontended) return now;
    const long before = std::exchange(switches_, switches());
    crowding.yielded(since, now, switches_ != before);
    return now;
  }

 private:
  static long switches() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }

  // Longer than a yield that no thread uses, shorter than two process switches.
  static constexpr std::chrono::microseconds kUncontended{2};
  long switches_ = 0;  // to threads that wanted the core
};

}  // namespace mpi_gdr
