#include "common/log.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "common/host_name.hpp"

namespace mpi_gdr {
namespace {

std::atomic<int> log_rank{-1}, log_size{0};

int open_log() {
  if (Env::get().debug_file.empty()) return STDERR_FILENO;
  const std::string path = file_name(Env::get().debug_file);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  return fd < 0 ? STDERR_FILENO : fd;
}

int log_fd() {
  static const int fd = open_log();
  return fd;
}

std::string format(std::string_view level, const char* subsystem, const std::string& text) {
  static const std::string host = host_name();
  std::ostringstream line;
  line << host << ':' << getpid() << ':' << syscall(SYS_gettid);
  if (const int rank = log_rank.load(std::memory_order_relaxed); rank >= 0)
    line << " [" << rank << '/' << log_size.load(std::memory_order_relaxed) << ']';
  line << " mpi-gdr " << level << ' ' << subsystem << ' ' << text << '\n';
  return line.str();
}

void write_all(int fd, const std::string& line) {
  // A line that cannot be written is dropped: logging must never fail the caller.
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
}

}  // namespace

void set_log_rank(int rank, int size) {
  log_rank.store(rank, std::memory_order_relaxed);
  log_size.store(size, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) { return level <= Env::get().debug; }

void log_line(LogLevel level, const char* subsystem, const std::string& text) {
  write_all(log_fd(), format(name(level), subsystem, text));
}

void log_fatal(const std::string& text) {
  const std::string line = format("FATAL", "ENGINE", text);
  write_all(log_fd(), line);
  if (log_fd() != STDERR_FILENO) write_all(STDERR_FILENO, line);
}

}  // namespace mpi_gdr
