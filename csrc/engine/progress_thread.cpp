#include "engine/progress_thread.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/quiet_thread.hpp"
#include "device/device.hpp"
#include "engine/backoff.hpp"

namespace mpi_gdr {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kSampleEvery = microseconds(100);
constexpr microseconds kShortestNap(50);
// Time for the issuer to lose its core and regain it: polling for less than this is cheaper than a nap.
constexpr nanoseconds kHandOver = microseconds(20);
// While callers drive progress, naps grow to this many longest naps: a wake-up costs a core about 10 us.
constexpr int kNapsBesideCallers = 4;
constexpr int kMostNapsDeferred = 16;                          // maximum naps before it runs When::Later work
constexpr nanoseconds kQuiet = std::chrono::milliseconds(50);  // without progress; a nap costs little then
constexpr nanoseconds kCrowdedQuiet = microseconds(200);       // where a yield costs a time slice

nanoseconds read(clockid_t clock) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) return nanoseconds(0);  // the thread has ended
  return std::chrono::seconds(t.tv_sec) + nanoseconds(t.tv_nsec);
}

clockid_t clock_of_this_thread() {
  clockid_t clock = CLOCK_MONOTONIC;
  pthread_getcpuclockid(pthread_self(), &clock);
  return clock;
}

}  // namespace

ProgressThread::ProgressThread(Work work, microseconds longest_nap)
    : work_(std::move(work)), longest_nap_(longest_nap), beside_callers_(longest_nap) {}

void ProgressThread::begin(std::shared_ptr<void> engine) {
  thread_ = quiet_thread("mpigdr-progress", [this, held = std::move(engine)] { run(); });
}

void ProgressThread::wake(When when) {
  thread_local const clockid_t clock = clock_of_this_thread();
  issuer_clock_.store(clock, std::memory_order_relaxed);
  if (when == When::Later) {
    // Each message delays the takeover, within a limit: its issuer is probably not computing yet.
    const nanoseconds now = read(CLOCK_MONOTONIC);
    if (work_.outstanding.background() == 1) first_deferred_.store(now.count(), std::memory_order_relaxed);
    const nanoseconds most =
        nanoseconds(first_deferred_.load(std::memory_order_relaxed)) + kMostNapsDeferred * longest_nap_;
    deferred_until_.store(std::min(now + longest_nap_, most).count(), std::memory_order_relaxed);
  }
  if (when == When::Now) at_once_.store(true, std::memory_order_seq_cst);
  // Pairs with sleep() and nap(), which set rest_ before they look for work and at_once_; callers add work
  // and set at_once_ before they look at rest_.
  const Rest rest = rest_.load(std::memory_order_seq_cst);
  if (rest == Rest::None || (rest == Rest::Nap && when != When::Now) ||
      (rest == Rest::Deferred && when == When::Later))
    return;
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void ProgressThread::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default of 50 us doubles the shortest nap
  while (!stopping_.load(std::memory_order_acquire)) {
    sleep();
    poll_until_idle();
  }
  std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void ProgressThread::sleep() {
  std::unique_lock lock(mutex_);
  rest_.store(Rest::Sleep, std::memory_order_seq_cst);
  changed_.wait(
      lock, [&] { return stopping_.load(std::memory_order_acquire) || work_.outstanding.background() > 0; });
  rest_.store(Rest::None, std::memory_order_seq_cst);
}

void ProgressThread::nap(nanoseconds duration, Rest rest) {
  std::unique_lock lock(mutex_);
  rest_.store(rest, std::memory_order_seq_cst);
  changed_.wait_for(lock, duration, [&] {
    return stopping_.load(std::memory_order_acquire) || at_once_.load(std::memory_order_seq_cst) ||
           (rest == Rest::Deferred && work_.outstanding.urgent() > 0);
  });
  at_once_.exchange(false, std::memory_order_seq_cst);  // a later When::Now ends the next nap
  rest_.store(Rest::None, std::memory_order_seq_cst);
}

void ProgressThread::poll_until_idle() {
  microseconds pause = kShortestNap;
  Yields yields;
  yields.begin();
  nanoseconds last_move = read(CLOCK_MONOTONIC) - kHandOver;
  while (work_.outstanding.background() > 0 && !stopping_.load(std::memory_order_acquire)) {
    const bool urgent = work_.outstanding.urgent() > 0;
    const bool deferred =
        !urgent && read(CLOCK_MONOTONIC).count() < deferred_until_.load(std::memory_order_relaxed);
    if (work_.callers.load(std::memory_order_acquire) > 0 || deferred) {
      nap(beside_callers_, urgent ? Rest::Nap : Rest::Deferred);
      beside_callers_ = urgent || work_.outstanding.urgent() > 0
                            ? longest_nap_
                            : std::min(2 * beside_callers_, kNapsBesideCallers * longest_nap_);
      continue;
    }
    beside_callers_ = longest_nap_;
    enter_device();
    Doorbell bell;
    std::shared_ptr<const shm::NodeMemory> memory;  // a caller may destroy the group
    const bool moved = work_.pass(bell, memory);
    const nanoseconds now = read(CLOCK_MONOTONIC);
    if (moved) last_move = now;
    if (issuer_computes() && !keeps_polling(Clock::now())) {
      if (moved) pause = kShortestNap;
      if (now - last_move < kHandOver) continue;  // the next event is likely near
      pause = std::min(pause, longest_nap_);
      rest(bell, pause);
      pause *= 2;
    } else if (!moved) {
      // Yielding passes the core to an issuer that is ready to run: issuer_computes() then sees its CPU time.
      const auto begin = Clock::now();
      if (now - last_move > (naps_soon(begin) ? kCrowdedQuiet : kQuiet)) {
        rest(bell, kShortestNap);
      } else {
        yields.yield(work_.crowding, begin);
      }
    }
  }
}

void ProgressThread::enter_device() {
  Device* const device = device_.load(std::memory_order_acquire);
  if (device == entered_) return;
  entered_ = device;
  try {
    device->enter_thread();
  } catch (const Error& e) {  // operations will fail with it
    log(LogLevel::Warn, "COLL", "the progress thread cannot use the device: ", e.what());
  }
}

bool ProgressThread::keeps_polling(Clock::time_point now) const {
  return work_.outstanding.on_device() > 0 && !work_.crowding.oversubscribed() &&
         !work_.crowding.yields_cost_slices(now);
}

bool ProgressThread::naps_soon(Clock::time_point now) const {
  return work_.crowding.yields_cost_slices(now) ||
         (work_.crowding.oversubscribed() && work_.outstanding.on_device() > 0);
}

bool ProgressThread::issuer_computes() {
  const nanoseconds wall = read(CLOCK_MONOTONIC);
  if (wall - sampled_wall_ < kSampleEvery) return computes_;
  const nanoseconds cpu = read(issuer_clock_.load(std::memory_order_relaxed));
  computes_ = cpu > sampled_cpu_ && (cpu - sampled_cpu_) * 10 > wall - sampled_wall_;
  sampled_wall_ = wall;
  sampled_cpu_ = cpu;
  return computes_;
}

void ProgressThread::stop(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  stopping_.store(true, std::memory_order_release);
  changed_.notify_all();
  const bool ended = changed_.wait_for(lock, patience, [&] { return ended_; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

}  // namespace mpi_gdr
