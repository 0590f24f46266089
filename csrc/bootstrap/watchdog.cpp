#include "bootstrap/watchdog.hpp"

#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "common/exit_status.hpp"
#include "common/quiet_thread.hpp"

namespace mpigdr {

void report(int rank, const std::string& text) {
  const std::string line = "[mpi-gdr] rank " + std::to_string(rank) + ": " + text + "\n";
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (n <= 0) return;
    written += static_cast<std::size_t>(n);
  }
}

Watchdog::Watchdog(std::string what, Deadline deadline, int rank, std::function<std::string()> details)
    : what_(std::move(what)), details_(std::move(details)) {
  thread_ = quiet_thread("mpigdr-guard", [this, deadline, rank] { run(deadline, rank); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::run(Deadline deadline, int rank) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (changed_.wait_until(lock, deadline, [this] { return done_; })) return;
  report(rank, what_ + " has not returned by its deadline; this process ends with code " +
                   std::to_string(kExitStuck));
  if (details_) {
    // The store may be what hangs: ask it from a thread that can be left behind.
    auto answer = std::make_shared<std::promise<std::string>>();
    auto future = answer->get_future();
    quiet_thread("mpigdr-details", [answer, details = details_] {
      try {
        answer->set_value(details());
      } catch (const std::exception& e) {
        answer->set_value(std::string("no details: ") + e.what());
      }
    }).detach();
    if (future.wait_for(std::chrono::seconds(3)) == std::future_status::ready)
      report(rank, future.get());
    else
      report(rank, "the store does not answer either");
  }
  ::_exit(kExitStuck);
}

}  // namespace mpigdr
