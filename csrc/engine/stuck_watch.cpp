#include "engine/stuck_watch.hpp"

#include <pthread.h>
#include <unistd.h>

#include <csignal>

#include "common/log.hpp"
#include "engine/engine.hpp"

namespace mpigdr {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);
constexpr int kExitStuck = 124;  // as timeout(1) does

}  // namespace

StuckWatch::StuckWatch(Engine& engine) : engine_(engine), thread_([this] { run(); }) {}

void StuckWatch::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), "mpigdr-watch");
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [&] { return stopping_; })) look();
}

void StuckWatch::look() {
  if (told_ || !engine_.stuck()) return;
  OperationPtr operation;
  {
    std::lock_guard lock(engine_.current_mutex_);
    operation = engine_.current_;
  }
  if (!operation || Clock::now() < operation->info().deadline + engine_.options_.stuck_grace) return;
  told_ = true;
  const std::string text = "a thread is stuck inside the MPI library past the deadline of " +
                           operation->describe() + ": a peer is gone or hangs. Ending this process";
  if (engine_.options_.on_stuck) {
    engine_.options_.on_stuck(text);
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

}  // namespace mpigdr
