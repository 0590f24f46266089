#include "diagnostics/flight_signal.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "common/log.hpp"
#include "common/quiet_thread.hpp"

namespace mpi_gdr {
namespace {

// The handler adds 1 to the counter of an eventfd; kStop exceeds any number of signals.
constexpr std::uint64_t kStop = std::uint64_t{1} << 62;

// Only these are used by the handler.
std::atomic<int> event{-1};
std::atomic<pid_t> owner{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

void on_signal(int) {
  const int saved = errno;
  // A forked child inherits the handler, but has no thread and no log.
  if (owner.load(std::memory_order_relaxed) == getpid()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event.load(std::memory_order_relaxed), &one, sizeof one);
  }
  errno = saved;
}

void log_written(const char* subject, const char* what, const FileWriter::Result& written) {
  log(LogLevel::Warn, subject,
      written.problem.empty() ? std::string(what) + " is in " + written.path : written.problem);
}

}  // namespace

FlightSignal::FlightSignal(int signal, std::shared_ptr<FlightWriter> writer,
                           std::shared_ptr<const Trace> trace)
    : signal_(signal), writer_(std::move(writer)), trace_(std::move(trace)) {
  struct sigaction current{};
  if (sigaction(signal_, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) || current.sa_handler != SIG_DFL) {
    log(LogLevel::Info, "INIT", "the program handles signal ", signal_,
        ", which therefore writes no flight log and no trace");
    return;
  }
  event_ = eventfd(0, EFD_CLOEXEC);
  if (event_ < 0) return;
  event.store(event_, std::memory_order_relaxed);
  owner.store(getpid(), std::memory_order_relaxed);
  thread_ = quiet_thread("mpigdr-signal", [this] { run(); });
  struct sigaction ours{};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  sigaction(signal_, &ours, nullptr);
}

FlightSignal::~FlightSignal() {
  if (!installed()) return;
  struct sigaction current{};
  if (sigaction(signal_, nullptr, &current) == 0 && !(current.sa_flags & SA_SIGINFO) &&
      current.sa_handler == on_signal)
    signal(signal_, SIG_DFL);
  owner.store(0, std::memory_order_relaxed);
  [[maybe_unused]] const ssize_t n = write(event_, &kStop, sizeof kStop);
  thread_.join();
  // The eventfd stays open: a running handler may still write to it.
}

void FlightSignal::run() {
  for (;;) {
    std::uint64_t count = 0;
    if (read(event_, &count, sizeof count) != sizeof count) {
      if (errno == EINTR) continue;
      return;
    }
    if (count >= kStop) return;
    if (writer_) log_written("FLIGHT", "the flight log", writer_->write("signal", std::chrono::seconds(10)));
    if (trace_) log_written("TRACE", "the trace", trace_->write("signal", std::chrono::seconds(10)));
  }
}

}  // namespace mpi_gdr
