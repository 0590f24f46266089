#include "engine/completer.hpp"

#include <csignal>

#include "common/log.hpp"

namespace mpigdr {
namespace {

thread_local int depth_of_next = 0;

// Signals are for the application's threads.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

int Completer::depth_of_caller() { return depth_of_next; }

void Completer::push(int depth, std::function<void()> callback) {
  std::shared_ptr<Worker> worker;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    while (static_cast<int>(workers_.size()) <= depth) {
      auto fresh = std::make_shared<Worker>();
      fresh->thread = std::thread(run, fresh, static_cast<int>(workers_.size()));
      workers_.push_back(std::move(fresh));
    }
    worker = workers_[depth];
  }
  {
    std::lock_guard lock(worker->mutex);
    worker->queue.push_back(std::move(callback));
  }
  worker->changed.notify_all();
}

void Completer::run(std::shared_ptr<Worker> worker, int depth) {
  block_signals();
  pthread_setname_np(pthread_self(), "mpigdr-complete");
  depth_of_next = depth + 1;
  std::unique_lock lock(worker->mutex);
  for (;;) {
    worker->changed.wait(lock, [&] { return worker->stopping || !worker->queue.empty(); });
    if (worker->queue.empty()) break;
    std::function<void()> callback = std::move(worker->queue.front());
    worker->queue.pop_front();
    lock.unlock();
    try {
      callback();
    } catch (const std::exception& e) {
      log(LogLevel::Warn, "ENGINE", "a completion callback threw: ", e.what());
    }
    callback = nullptr;  // destroys what it held here, not under the lock
    lock.lock();
  }
  worker->ended = true;
  worker->changed.notify_all();
}

void Completer::stop(std::chrono::milliseconds patience) {
  std::vector<std::shared_ptr<Worker>> workers;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    workers.swap(workers_);
  }
  const auto until = std::chrono::steady_clock::now() + patience;
  for (auto& worker : workers) {
    std::unique_lock lock(worker->mutex);
    worker->stopping = true;
    worker->changed.notify_all();
    const bool ended = worker->changed.wait_until(lock, until, [&] { return worker->ended; });
    lock.unlock();
    ended ? worker->thread.join() : worker->thread.detach();
  }
}

}  // namespace mpigdr
