#pragma once

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
  explicit Backoff(Crowding& crowding) : crowding_(crowding) {}
  void moved() {
    if (idle_ > 0 && since_ == Crowding::Clock::time_point{}) crowding_.spin_succeeded();
    idle_ = 0;
    since_ = {};
  }
  // `bell`: the only flag that the last poll waits for; with a null flag rest() sleeps for a fixed time.
  void idle(const Doorbell& bell) {
    if (idle_ == 0) spins_ = crowding_.spins(Crowding::Clock::now()) ? kSpins : 0;
    if (idle_++ < spins_) return;  // without reading the clock
    const auto now = Crowding::Clock::now();
    if (since_ == Crowding::Clock::time_point{}) {
      since_ = yielded_ = now;
      yields_.begin();
      crowding_.spin_failed();
    }
    const bool oversubscribed = crowding_.oversubscribed();
    const bool crowded = oversubscribed ? crowding_.yields_cost_slices(now) : crowding_.shared(now);
    const auto patience = bell.flag && crowded ? kCrowdedYields : oversubscribed ? kYields : kLongYields;
    if (now - since_ < patience) {
      yielded_ = yields_.yield(crowding_, yielded_);
      if (!crowding_.shared(now)) idle_ = 0;  // each yield makes the next polls slower
    } else {
      yielded_ = now;
      rest(bell, kNap);
    }
  }

 private:
  // About 25 us: a rank that has just got its core needs less for a small call. Yields follow, which cost
  // less than two polls if no thread wants the core.
  static constexpr int kSpins = 200;
  static constexpr std::chrono::microseconds kLongYields{50000};
  // Ranks on one core switch fastest by yielding: waking an idle core costs 50 us in a virtual machine.
  // Beside other programs a yield costs a time slice (sched(7)); only sleep passes the core to a rank.
  static constexpr std::chrono::microseconds kYields{500}, kCrowdedYields{25};
  static constexpr std::chrono::microseconds kNap{50};
  Crowding& crowding_;
  Yields yields_;
  // Polls without progress, counted anew after a yield if no core is shared; how many of them spin.
  int idle_ = 0, spins_ = 0;
  Crowding::Clock::time_point since_, yielded_;  // the first yield and the last; the epoch: none yet
};

}  // namespace mpi_gdr
