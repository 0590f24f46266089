#include "bootstrap/watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "bootstrap/shared_memory.hpp"
#include "common/exit_status.hpp"
#include "common/quiet_thread.hpp"

namespace mpi_gdr {

void report(int rank, const std::string& text) {
  const std::string line = "[mpi-gdr] rank " + std::to_string(rank) + ": " + text + "\n";
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (n <= 0) return;
    written += static_cast<std::size_t>(n);
  }
}

namespace {

std::mutex words_mutex;
std::function<std::string(const std::string&)> words;  // under words_mutex

}  // namespace

void set_last_words(std::function<std::string(const std::string& reason)> given) {
  const std::lock_guard lock(words_mutex);
  words = std::move(given);
}

std::string last_words(const std::string& reason) noexcept {
  try {
    std::function<std::string(const std::string&)> ask;
    {
      const std::lock_guard lock(words_mutex);
      ask = words;
    }
    return ask ? ask(reason) : "; there is no flight log: no operation has been called yet";
  } catch (...) {
    return "";
  }
}

thread_local Watchdog* Watchdog::innermost = nullptr;

Watchdog::Watchdog(std::string what, Deadline deadline, int rank, std::function<std::string()> details,
                   std::function<std::string()> lost)
    : what_(std::move(what)),
      rank_(rank),
      process_(::getpid()),
      details_(std::move(details)),
      lost_(std::move(lost)) {
  [[maybe_unused]] static const int once = ::on_exit(
      [](int status, void*) {
        if (innermost) innermost->exit_inside(status);
      },
      nullptr);
  thread_ = quiet_thread("mpigdr-guard", [this, deadline] { run(deadline); });
  innermost = this;
}

Watchdog::~Watchdog() {
  innermost = outer_;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::announce(const std::string& why, int status) const {
  const std::string text = what_ + why;
  report(rank_, text + "; this process ends with code " + std::to_string(status) + last_words(text));
}

// Called on the thread that is inside the guarded call. run() still enforces the deadline: other exit
// handlers may hang.
void Watchdog::exit_inside(int status) noexcept try {
  if (::getpid() != process_) return;              // a child forked inside the call
  const std::lock_guard<std::mutex> lock(mutex_);  // blocks forever if the other thread is ending the process
  exiting_ = true;
  std::string reason;
  // A process that is being killed stays visible for some milliseconds.
  for (int turn = 0; lost_ && reason.empty() && turn < 20; ++turn) {
    if (turn) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    reason = lost_();
  }
  announce(" has ended this process" + (reason.empty() ? "" : ": " + reason), status & 0xff);
  unlink_mpich_shared_memory();
} catch (...) {
  // Out of memory.
}

void Watchdog::run(Deadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  // A peer that has ended may have done its part already: the call then returns soon.
  constexpr std::chrono::milliseconds kLook(250), kConfirm(3000);
  Deadline since = deadline;
  std::string reason;  // the first: later ones may be its consequence
  for (auto now = std::chrono::steady_clock::now(); lost_ && now < deadline;
       now = std::chrono::steady_clock::now()) {
    if (changed_.wait_until(lock, std::min(deadline, now + kLook), [this] { return done_; })) return;
    if (exiting_) break;
    const std::string found = lost_();
    if (found.empty() || reason.empty()) {  // no reason, or the first one
      reason = found;
      since = now;
    }
    if (reason.empty() || now < since + kConfirm) continue;
    announce(" cannot return: " + reason, kExitStuck);
    unlink_mpich_shared_memory();
    ::_exit(kExitStuck);
  }
  if (changed_.wait_until(lock, deadline, [this] { return done_; })) return;
  announce(" has not returned by its deadline", kExitStuck);
  if (details_) {
    // The store may be what hangs: query it from a thread that can be abandoned.
    try {
      auto answer = run_apart("mpigdr-details", details_);
      const bool known = answer.wait_for(std::chrono::seconds(3)) == std::future_status::ready;
      report(rank_, known ? answer.get() : "the store does not answer either");
    } catch (const std::exception& e) {
      report(rank_, std::string("no details: ") + e.what());
    }
  }
  unlink_mpich_shared_memory();
  ::_exit(kExitStuck);
}

}  // namespace mpi_gdr
