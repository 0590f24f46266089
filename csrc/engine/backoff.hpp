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
  void moved() { idle_ = 0; }
  // `bell`: what the last poll found to wait for, if it is known and the only thing; its flag is null
  // otherwise.
  void idle(const shm::Doorbell& bell) {
    ++idle_;
    if (!oversubscribed_) {
      if (idle_ < kSpins) return;
      idle_ < kYields ? static_cast<void>(sched_yield()) : std::this_thread::sleep_for(kNap);
    } else if (bell.flag) {
      if (idle_ >= kLooks) shm::sleep(bell, kNap);
    } else {
      idle_ < kFewYields ? static_cast<void>(sched_yield()) : std::this_thread::sleep_for(kNap);
    }
  }

 private:
  static constexpr int kSpins = 4000;     // some 500 us of polling
  static constexpr int kYields = 200000;  // some 50 ms and more: by then a nap costs nothing that matters
  // A launcher gives each rank a session of its own, and Linux groups processes by session to share the cores
  // out (sched(7), autogroups): a yield then gives nothing to the other ranks, only a nap does.
  static constexpr int kFewYields = 100;
  // Before the core is given away: whoever raises the flag may run on another one.
  static constexpr int kLooks = 20;
  static constexpr std::chrono::microseconds kNap{50};
  const bool oversubscribed_;
  int idle_ = 0;
};

}  // namespace mpigdr
