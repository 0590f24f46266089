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
    if (idle_ < kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr int kSpins = 4000;     // some 500 us of polling
  static constexpr int kYields = 200000;  // some 50 ms and more: by then a nap costs nothing that matters
  const bool oversubscribed_;
  int idle_ = 0;
};

}  // namespace mpigdr
