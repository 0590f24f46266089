// What a thread does between two polls that moved nothing.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

#include "transport/shm/doorbell.hpp"

namespace mpigdr {

class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : oversubscribed_(oversubscribed) {}
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
    if (now - since_ < (!oversubscribed_ ? kLongYields : bell.flag ? kShortYields : kYields))
      sched_yield();
    else if (bell.flag)
      shm::sleep(bell, kNap);
    else
      std::this_thread::sleep_for(kNap);
  }

 private:
  static constexpr int kSpins = 4000;  // some 500 us of polling
  // By then a nap costs nothing that matters.
  static constexpr std::chrono::microseconds kLongYields{50000};
  // Between ranks that share a core a yield is the quickest way from one to the next. But a launcher gives
  // each of them a session of its own, and Linux shares the cores out by session (sched(7), autogroups):
  // beside other programs that compute, a yield may cost their time slices, and only sleep gives the core to
  // another rank. Where a flag ends the sleep it may begin soon; a nap would last too long.
  static constexpr std::chrono::microseconds kShortYields{25};
  static constexpr std::chrono::microseconds kYields{500};
  static constexpr std::chrono::microseconds kNap{50};
  const bool oversubscribed_;
  int idle_ = 0;                                 // spins
  std::chrono::steady_clock::time_point since_;  // it yields; the epoch: not yet
};

}  // namespace mpigdr
