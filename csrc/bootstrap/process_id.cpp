#include "bootstrap/process_id.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "bootstrap/host.hpp"

namespace mpigdr {
namespace {

struct Stat {
  char state = '?';
  std::int64_t parent = 0;
  std::uint64_t started = 0;
};

// /proc/PID/stat: "pid (name) state ppid ... starttime ...", where the name may hold blanks and brackets.
// Nothing: there is no such process. state '?': it cannot be read for another reason.
std::optional<Stat> read_stat(std::int64_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? std::nullopt : std::optional<Stat>(Stat{});
  char text[1024];
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  const int error = errno;
  ::close(fd);
  if (got <= 0) return got < 0 && error == ESRCH ? std::nullopt : std::optional<Stat>(Stat{});
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');
  if (!at || at[1] != ' ') return Stat{};
  Stat stat;
  stat.state = at[2];
  constexpr int kState = 3, kParent = 4, kStartTime = 22;  // as proc(5) numbers the fields
  at += 2;
  for (int field = kState; at && field < kStartTime; ++field) {
    if (field == kParent) stat.parent = std::strtoll(at, nullptr, 10);
    if ((at = std::strchr(at, ' '))) ++at;
  }
  if (at) stat.started = std::strtoull(at, nullptr, 10);
  return stat;
}

std::uint64_t hash(const std::string& text) {  // FNV-1a
  std::uint64_t h = 14695981039346656037u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h ? h : 1;
}

}  // namespace

ProcessId own_process() {
  ProcessId own;
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  own.host = name;
  own.pid = ::getpid();
  // In a container that shows another PID namespace's /proc, the pid is that of somebody else.
  char self[32] = "";
  if (::readlink("/proc/self", self, sizeof self - 1) <= 0 || self != std::to_string(own.pid)) return own;
  const auto stat = read_stat(own.pid);
  if (!stat || stat->started == 0) return own;
  own.started = stat->started;
  // Containers of one host see processes of their own only.
  char pids[128] = "";
  if (::readlink("/proc/self/ns/pid", pids, sizeof pids - 1) > 0) own.domain = hash(host_identity() + pids);
  return own;
}

std::int64_t parent_of(std::int64_t pid) {
  const auto stat = read_stat(pid);
  return stat ? stat->parent : 0;
}

std::uint64_t started_at(std::int64_t pid) {
  const auto stat = read_stat(pid);
  return stat ? stat->started : 0;
}

std::string describe(int rank, const ProcessId& process) {
  return "rank " + std::to_string(rank) + " (host " + process.host + ", pid " + std::to_string(process.pid) +
         ")";
}

ProcessState look_at(const ProcessId& process) {
  const auto stat = read_stat(process.pid);
  if (!stat) return ProcessState::Ended;
  if (stat->state == '?') return ProcessState::Runs;  // no news
  if (stat->started != process.started || stat->state == 'Z' || stat->state == 'X')
    return ProcessState::Ended;
  if (stat->state == 't') return ProcessState::Traced;
  return stat->state == 'T' ? ProcessState::Stopped : ProcessState::Runs;
}

std::string find_lost(const std::vector<ProcessId>& processes, int rank, bool stopped) {
  // The first of each kind: at a deadline the ranks that waited for a stopped one end too, so that "has
  // ended" alone would name a victim and hide the cause.
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

}  // namespace mpigdr
