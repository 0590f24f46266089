#include "engine/stuck_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "common/memory_reserve.hpp"
#include "common/quiet_thread.hpp"

namespace mpi_gdr {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);
constexpr int kLooks = 3;

}  // namespace

StuckWatch::StuckWatch(const EngineOptions& options, const Progress& progress, const Outstanding& outstanding,
                       const Observers& observers)
    : options_(options),
      progress_(progress),
      outstanding_(outstanding),
      observers_(observers),
      thread_(quiet_thread("mpigdr-watch", [this] { run(); })) {}

void StuckWatch::lose(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (lost_.empty()) lost_ = reason;
}

void StuckWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [&] { return stopping_; })) {
    lock.unlock();  // look() may write the flight log
    try {
      look();
    } catch (const std::bad_alloc&) {
      release_memory_reserve();
      notified_ = false;  // repeat at the next look
    }
    lock.lock();
  }
}

void StuckWatch::look() {
  seen_ = progress_.stuck() ? seen_ + 1 : 0;  // a process that was suspended looks stuck at first
  if (notified_ || seen_ < kLooks) return;
  const OperationPtr operation = progress_.current();
  std::unique_lock lock(mutex_);
  std::string lost = lost_;
  lock.unlock();
  if (operation && !operation->group().failed()) lost.clear();  // the lost peer is in other groups
  // Any overdue operation counts: a stuck thread blocks all.
  std::int64_t deadline = outstanding_.earliest_deadline();
  if (operation)
    deadline = std::min<std::int64_t>(deadline, operation->info().deadline.time_since_epoch().count());
  const auto grace = std::chrono::duration_cast<Clock::duration>(options_.stuck_grace).count();
  if (lost.empty() &&
      (deadline == Outstanding::kNever || Clock::now().time_since_epoch().count() - grace < deadline))
    return;
  notified_ = true;
  std::string text = std::string("a thread is stuck inside the MPI library") +
                     (lost.empty() ? " past a deadline" : "") + ", working on " +
                     (operation ? operation->describe() : std::string("the destruction of a group")) + ": " +
                     (lost.empty() ? "a peer is gone or hangs" : lost);
  text += observers_.group_failed(text);
  text += ". Ending this process";
  if (options_.on_stuck) {
    options_.on_stuck(text);
  } else {
    log_fatal(text);
    _exit(kExitStuck);
  }
}

void StuckWatch::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace mpi_gdr
