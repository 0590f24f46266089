#include "bootstrap/process_id.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "bootstrap/host.hpp"
#include "common/fnv1a.hpp"
#include "common/host_name.hpp"

namespace mpi_gdr {
namespace {

// The first 4 KiB of /proc/PID/<file>. Nothing: no such process; "": unreadable.
std::optional<std::string> read_proc(std::int64_t pid, const char* file) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? std::nullopt : std::optional<std::string>("");
  char text[4096];
  const ssize_t got = ::read(fd, text, sizeof text);
  const int error = errno;
  ::close(fd);
  if (got < 0 && error == ESRCH) return std::nullopt;
  return std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0);
}

std::optional<ProcessStat> read_stat(std::int64_t pid) {
  const auto text = read_proc(pid, "stat");
  return text ? std::optional(parse_process_stat(*text)) : std::nullopt;
}

constexpr const char* kAgentsMark = "TORCHELASTIC_RUN_ID";  // set by torchrun's agent for its children

// The variable's value when the process was started. Nothing: not set, or unreadable.
std::optional<std::string> started_with(const std::string& process, const std::string& variable) {
  std::ifstream file("/proc/" + process + "/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry.starts_with(variable + '=')) return entry.substr(variable.size() + 1);
  return std::nullopt;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

ProcessStat parse_process_stat(const std::string& text) {
  ProcessStat stat;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return stat;
  const char* at = text.c_str() + name_end + 2;
  stat.state = *at;
  constexpr int kState = 3, kParent = 4, kFlags = 9, kStartTime = 22;  // numbered as in proc(5)
  for (int field = kState; field < kStartTime; ++field) {
    if (!(at = std::strchr(at, ' '))) return stat;
    ++at;
    constexpr unsigned long kSignalled = 0x400;  // PF_SIGNALED in all kernels; a hint, see look_at()
    if (field + 1 == kParent) stat.parent = std::strtoll(at, nullptr, 10);
    if (field + 1 == kFlags) stat.signalled = std::strtoul(at, nullptr, 10) & kSignalled;
  }
  stat.started = std::strtoull(at, nullptr, 10);
  return stat;
}

bool dumps_core(const std::string& status) { return status.find("\nCoreDumping:\t1\n") != std::string::npos; }

ProcessId own_process() {
  ProcessId own;
  own.host = host_name();
  own.pid = ::getpid();
  // In a container that shows the /proc of another PID namespace, this pid is another process there.
  char self[32] = "";
  if (::readlink("/proc/self", self, sizeof self - 1) <= 0 || self != std::to_string(own.pid)) return own;
  const auto stat = read_stat(own.pid);
  if (!stat || stat->started == 0) return own;
  own.started = stat->started;
  // Containers of one host see only their own processes.
  char pids[128] = "";
  if (::readlink("/proc/self/ns/pid", pids, sizeof pids - 1) > 0) {
    Fnv1a hash;
    hash.add(host_identity() + pids);
    own.domain = std::max<std::uint64_t>(hash.value(), 1);  // 0: unknown
  }
  return own;
}

std::optional<ProcessId> torchrun_agent() {
  if (!std::getenv(kAgentsMark)) return std::nullopt;
  // Skips wrappers, which have the variable; the agent does not.
  constexpr int kMostWrappers = 32;
  ProcessId process = own_process();
  if (process.domain == 0) return std::nullopt;
  auto stat = read_stat(process.pid);
  for (int i = 0; i < kMostWrappers && stat && stat->parent > 1; ++i) {
    process.pid = stat->parent;
    const bool wrapper = started_with(std::to_string(process.pid), kAgentsMark).has_value();
    stat = read_stat(process.pid);
    if (wrapper) continue;
    process.started = stat ? stat->started : 0;
    return process.started ? std::optional(process) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> start_of_pid_namespace() {
  const auto first = read_stat(1);
  if (!first || first->state == '?') return std::nullopt;
  const double since_boot = static_cast<double>(first->started) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME) + since_boot;
}

std::int64_t launcher_pid(const char* pmi_fd) {
  ucred launcher{};
  socklen_t size = sizeof launcher;
  constexpr uid_t kNoUser = static_cast<uid_t>(-1);  // the value for sockets of other families
  const bool known = pmi_fd &&
                     ::getsockopt(std::atoi(pmi_fd), SOL_SOCKET, SO_PEERCRED, &launcher, &size) == 0 &&
                     launcher.uid != kNoUser;
  return known ? launcher.pid : -1;
}

bool sees_another_rank() {
  const auto is_pid = [](const std::string& name) {
    return name.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const char* variable : {"PMI_RANK", "PMI_ID"}) {
    const auto own = started_with("self", variable);
    if (!own) continue;
    std::error_code ended;
    for (std::filesystem::directory_iterator at("/proc", ended), end; !ended && at != end;
         at.increment(ended)) {
      const std::string name = at->path().filename();
      if (is_pid(name) && started_with(name, variable).value_or(*own) != *own) return true;
    }
  }
  return false;
}

std::string describe(int rank, const ProcessId& process) {
  return "rank " + std::to_string(rank) + " (host " + process.host + ", pid " + std::to_string(process.pid) +
         ")";
}

ProcessState look_at(const ProcessId& process) {
  const auto stat = read_stat(process.pid);
  if (!stat) return ProcessState::Ended;
  if (stat->state == '?') return ProcessState::Runs;  // unknown
  if (stat->started != process.started || stat->state == 'Z' || stat->state == 'X')
    return ProcessState::Ended;
  // A core dump may take minutes. Checked only for a signalled process: its status is expensive to read.
  if (stat->signalled && dumps_core(read_proc(process.pid, "status").value_or("")))
    return ProcessState::Ended;
  if (stat->state == 't') return ProcessState::Traced;
  return stat->state == 'T' ? ProcessState::Stopped : ProcessState::Runs;
}

std::string find_lost(const std::vector<ProcessId>& processes, int rank, bool stopped) {
  // Names both kinds: ranks that wait for a stopped one end at a deadline, and alone would hide the cause.
  std::string halted, ended;
  for (int r = 0; r < static_cast<int>(processes.size()); ++r) {
    const ProcessId& process = processes[r];
    if (r == rank || process.domain == 0 || process.domain != processes[rank].domain) continue;
    const ProcessState state = look_at(process);
    if (state == ProcessState::Ended) {
      if (ended.empty()) ended = describe(r, process) + " is gone: its process has ended";
    } else if (state != ProcessState::Runs && stopped && halted.empty()) {
      halted =
          describe(r, process) + (state == ProcessState::Traced ? " is held by a debugger"
                                                                : " is stopped (by SIGSTOP or job control)");
    }
  }
  return halted.empty() || ended.empty() ? halted + ended : halted + ", and " + ended;
}

}  // namespace mpi_gdr
