// What a thread does between two polls that moved nothing.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

#include "engine/crowding.hpp"
#include "transport/doorbell.hpp"

namespace mpi_gdr {

inline void rest(const Doorbell& bell, std::chrono::microseconds duration) {
  if (bell.flag)
    bell.sleep(duration);
  else
    std::this_thread::sleep_for(duration);
}

class Backoff {
 public:
  // `crowding` outlives it.
  explicit Backoff(Crowding& crowding) : crowding_(crowding) {}
  void moved() {
    if (idle_ > 0 && since_ == Crowding::Clock::time_point{}) crowding_.met();
    idle_ = 0;
    since_ = {};
  }
  // `bell`: the only thing that the last poll found to wait for; its flag is null if that is not known.
  void idle(const Doorbell& bell) {
    if (idle_ == 0) spins_ = crowding_.spins(Crowding::Clock::now()) ? kSpins : 0;
    if (idle_++ < spins_) return;  // without a look at the clock
    const auto now = Crowding::Clock::now();
    if (since_ == Crowding::Clock::time_point{}) {
      since_ = now;
      crowding_.missed();
    }
    const bool counted = crowding_.counted();
    const bool crowded = counted ? crowding_.slices(now) : crowding_.shared(now);
    const auto patience = bell.flag && crowded ? kCrowdedYields : counted ? kYields : kLongYields;
    if (now - since_ < patience) {
      sched_yield();
      crowding_.yielded(now, Crowding::Clock::now());
    } else {
      rest(bell, kNap);
    }
  }

 private:
  // Some 25 us of polling: longer than a rank that was just given its core needs for a small call. Then
  // yields, which cost less than two polls where no other thread wants the core.
  static constexpr int kSpins = 200;
  static constexpr std::chrono::microseconds kLongYields{50000};
  // Between ranks that share a core a yield is the quickest way from one to the next: the core need not be
  // woken from its idle state, which costs some 50 us in a virtual machine. Beside other programs that
  // compute, a yield costs their time slices (sched(7)), and only sleep hands the core to another rank.
  static constexpr std::chrono::microseconds kYields{500}, kCrowdedYields{25};
  static constexpr std::chrono::microseconds kNap{50};
  Crowding& crowding_;
  int idle_ = 0, spins_ = 0;           // polls since the last that moved something; of them to spin
  Crowding::Clock::time_point since_;  // it yields; the epoch: not yet
};

}  // namespace mpi_gdr
