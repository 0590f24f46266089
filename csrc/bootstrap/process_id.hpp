// Identity and state of ranks' processes on this host, read from /proc. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpi_gdr {

struct ProcessId {
  std::string host;          // for messages
  std::uint64_t domain = 0;  // equal for two processes that see each other in /proc; 0: unknown
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // clock ticks since boot; pids are reused, (pid, started) is not
};

// domain is 0 if /proc does not show this process.
ProcessId own_process();

// The torchrun agent that started this process, also through wrappers (a shell); nothing: none is visible.
std::optional<ProcessId> torchrun_agent();

// Start of the first process of this PID namespace, in seconds since the epoch. Nothing: unknown.
std::optional<double> start_of_pid_namespace();

// The process at the other end of the launcher's socket, PMI_FD; 0: in another PID namespace, -1: unknown.
std::int64_t launcher_pid(const char* pmi_fd);

// True if /proc shows a process that an MPI launcher started as another rank.
bool sees_another_rank();

std::string describe(int rank, const ProcessId& process);

enum class ProcessState {
  Runs,
  Stopped,  // by SIGSTOP or job control
  Traced,   // held by a debugger
  Ended     // gone, a zombie, dumping core, or its pid was reused
};

// /proc/PID/stat: "pid (name) state ppid ... starttime ..."; the name may contain blanks and parentheses.
struct ProcessStat {
  char state = '?';  // unknown
  std::int64_t parent = 0;
  bool signalled = false;  // a signal ends it
  std::uint64_t started = 0;
};
ProcessStat parse_process_stat(const std::string& text);
// `status`: the text of /proc/PID/status. True while the kernel writes a core dump of the process.
bool dumps_core(const std::string& status);

// Valid only for a process in the domain of own_process(), which must not be 0.
ProcessState look_at(const ProcessId& process);

// Names the first rank of `rank`'s domain that has ended and, if asked, the first that is stopped; or "".
std::string find_lost(const std::vector<ProcessId>& processes, int rank, bool stopped);

}  // namespace mpi_gdr
