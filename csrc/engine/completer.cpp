#include "engine/completer.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

#include "common/log.hpp"
#include "common/quiet_thread.hpp"

namespace mpigdr {

struct Completer::Pool : std::enable_shared_from_this<Pool> {
  std::mutex mutex;  // all of it
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  int threads = 0;
  int available = 0;  // threads that wait for a callback, or are just starting
  bool stopping = false;

  // With the mutex: somebody shall be free to take the front of the queue.
  void ensure_taker() {
    if (queue.empty() || available > 0) return;
    try {
      quiet_thread("mpigdr-complete", [pool = shared_from_this()] { pool->run(); }).detach();
      ++threads;
      ++available;
    } catch (const std::system_error& e) {
      // One that is running takes it when it is free, unless it waits for exactly this one.
      log(LogLevel::Warn, "ENGINE", "cannot start another completer thread: ", e.what());
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (queue.empty()) break;
      std::function<void()> callback = std::move(queue.front());
      queue.pop_front();
      --available;
      ensure_taker();
      lock.unlock();
      try {
        callback();
      } catch (const std::exception& e) {
        log(LogLevel::Warn, "ENGINE", "a completion callback threw: ", e.what());
      }
      callback = nullptr;  // destroys what it held here, not under the lock
      lock.lock();
      ++available;
    }
    --available;
    --threads;
    changed.notify_all();
  }
};

Completer::Completer() : pool_(std::make_shared<Pool>()) {
  pool_->threads = pool_->available = 1;
  quiet_thread("mpigdr-complete", [pool = pool_] { pool->run(); }).detach();
}

void Completer::push(std::function<void()> callback) {
  std::lock_guard lock(pool_->mutex);
  if (pool_->stopping) return;
  pool_->queue.push_back(std::move(callback));
  pool_->ensure_taker();
  pool_->changed.notify_one();
}

void Completer::stop(std::chrono::milliseconds patience) {
  std::unique_lock lock(pool_->mutex);
  pool_->stopping = true;
  pool_->changed.notify_all();
  pool_->changed.wait_for(lock, patience, [&] { return pool_->threads == 0; });
}

}  // namespace mpigdr
