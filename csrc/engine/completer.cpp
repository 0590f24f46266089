#include "engine/completer.hpp"

#include <condition_variable>
#include <mutex>

#include "common/log.hpp"
#include "common/quiet_thread.hpp"

namespace mpi_gdr {

struct Completer::Pool : std::enable_shared_from_this<Pool> {
  std::mutex mutex;  // guards all members
  std::condition_variable changed;
  Callbacks queue;
  int threads = 0;
  int available = 0;  // waiting for a callback, or starting
  bool stopping = false;

  void ensure_taker() noexcept {  // with the mutex
    if (queue.empty() || available > 0) return;
    try {
      quiet_thread("mpigdr-complete", [pool = shared_from_this()] { pool->run(); }).detach();
      ++threads;
      ++available;
    } catch (const std::exception& e) {
      // A running thread takes the callback later, unless it waits for exactly this one.
      warn("cannot start another completer thread: ", e);
    }
  }

  static void warn(const char* what, const std::exception& e) noexcept {
    try {
      log(LogLevel::Warn, "ENGINE", what, e.what());
    } catch (const std::bad_alloc&) {
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (queue.empty()) break;
      Callbacks one;
      one.splice(one.begin(), queue, queue.begin());
      --available;
      ensure_taker();
      lock.unlock();
      try {
        one.front()();
      } catch (const std::exception& e) {
        warn("a completion callback threw: ", e);
      }
      one.clear();  // destroyed without the lock
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

void Completer::push(Callbacks& callbacks) noexcept {
  if (callbacks.empty()) return;
  Callbacks dropped;  // destroyed without the lock
  std::lock_guard lock(pool_->mutex);
  if (pool_->stopping) return dropped.swap(callbacks);
  pool_->queue.splice(pool_->queue.end(), callbacks);
  pool_->ensure_taker();
  pool_->changed.notify_one();
}

void Completer::stop(std::chrono::milliseconds patience) {
  std::unique_lock lock(pool_->mutex);
  pool_->stopping = true;
  pool_->changed.notify_all();
  pool_->changed.wait_for(lock, patience, [&] { return pool_->threads == 0; });
}

}  // namespace mpi_gdr
