// What a thread does between two polls that moved nothing.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace mpigdr {

class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : oversubscribed_(oversubscribed) {}
  void moved() { idle_ = 0; }
  void idle() {
    ++idle_;
    if (!oversubscribed_ && idle_ < kSpins) return;
    if (idle_ < (oversubscribed_ ? kFewYields : kYields)) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr int kSpins = 4000;     // some 500 us of polling
  static constexpr int kYields = 200000;  // some 50 ms and more: by then a nap costs nothing that matters
  // A launcher gives each rank a session of its own, and Linux groups processes by session to share the cores
  // out (sched(7), autogroups): a yield then gives nothing to the other ranks, only a nap does.
  static constexpr int kFewYields = 100;
  const bool oversubscribed_;
  int idle_ = 0;
};

}  // namespace mpigdr
