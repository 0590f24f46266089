// What a thread does between two polls that moved nothing.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "transport/shm/doorbell.hpp"

namespace mpigdr {

// Whether others keep the cores for whole time slices, as far as the last yields have told. Of a process.
// Thread-safe.
class Crowding {
 public:
  using Clock = std::chrono::steady_clock;
  // A yield has lasted from `begin` to `end`.
  void note(Clock::time_point begin, Clock::time_point end) {
    if (end - begin > kSlice)
      until_.store((end + kRemembered).time_since_epoch().count(), std::memory_order_relaxed);
  }
  bool at(Clock::time_point now) const {
    return now.time_since_epoch().count() < until_.load(std::memory_order_relaxed);
  }

 private:
  // Shorter than any slice that Linux gives, longer than what a rank does between two waits.
  static constexpr std::chrono::microseconds kSlice{1000};
  static constexpr std::chrono::milliseconds kRemembered{20};
  std::atomic<Clock::rep> until_{0};
};

class Backoff {
 public:
  // `crowding` outlives it.
  Backoff(bool oversubscribed, Crowding& crowding) : oversubscribed_(oversubscribed), crowding_(crowding) {}
  void moved() {
    idle_ = 0;
    since_ = {};
  }
  // `bell`: what the last poll found to wait for, if it is known and the only thing; its flag is null
  // otherwise.
  void idle(const shm::Doorbell& bell) {
    if (!oversubscribed_ && ++idle_ < kSpins) return;  // without a look at the clock
    const auto now = std::chrono::steady_clock::now();
    if (since_ == std::chrono::steady_clock::time_point{}) since_ = now;
    const auto patience = !oversubscribed_                 ? kLongYields
                          : bell.flag && crowding_.at(now) ? kCrowdedYields
                                                           : kYields;
    if (now - since_ < patience) {
      sched_yield();
      if (oversubscribed_) crowding_.note(now, Crowding::Clock::now());
    } else if (bell.flag) {
      shm::sleep(bell, kNap);
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }

 private:
  static constexpr int kSpins = 4000;  // some 500 us of polling
  // By then a nap costs nothing that matters.
  static constexpr std::chrono::microseconds kLongYields{50000};
  // Between ranks that share a core a yield is the quickest way from one to the next, as long as nobody else
  // wants the core: it need not be woken from its idle state, which costs some 50 us in a virtual machine.
  // But Linux shares the cores out fairly (sched(7)). Beside other programs that compute, a yield costs their
  // time slices, and only sleep hands the core to another rank.
  static constexpr std::chrono::microseconds kYields{500}, kCrowdedYields{25};
  static constexpr std::chrono::microseconds kNap{50};
  const bool oversubscribed_;
  Crowding& crowding_;
  int idle_ = 0;                                 // spins
  std::chrono::steady_clock::time_point since_;  // it yields; the epoch: not yet
};

}  // namespace mpigdr
