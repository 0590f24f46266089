// Which process a rank is, and whether it still is: asked of /proc, for processes of the same host.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpi_gdr {

struct ProcessId {
  std::string host;          // for messages
  std::uint64_t domain = 0;  // equal: each finds the other in its /proc. 0: not known
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // clock ticks since boot: a pid is given out again, this pair is not
};

// Of this process. domain is 0 where /proc does not show it.
ProcessId own_process();

// The torchrun agent that started this process: its parent, or behind wrappers (numactl, a shell). Nothing:
// torchrun did not start it, or the agent cannot be seen from here, as when it has ended.
std::optional<ProcessId> torchrun_agent();

// When the first process of this PID namespace started, in seconds since the epoch. Nothing: not known.
std::optional<double> start_of_pid_namespace();

// The process at the other end of the launcher's socket, PMI_FD; 0: in another PID namespace, -1: not known.
std::int64_t launcher_pid(const char* pmi_fd);

// Whether /proc shows a process that an MPI launcher started as another rank than this one.
bool sees_another_rank();

// "rank 3 (host n7, pid 4711)"
std::string describe(int rank, const ProcessId& process);

enum class ProcessState {
  Runs,
  Stopped,  // by SIGSTOP or job control
  Traced,   // a debugger holds it
  Ended     // gone, a zombie, writing a core dump, or its pid belongs to another process
};

// What /proc/PID/stat says: "pid (name) state ppid ... starttime ..."; the name may hold blanks and brackets.
struct ProcessStat {
  char state = '?';  // it does not say
  std::int64_t parent = 0;
  bool signalled = false;  // a signal ends it
  std::uint64_t started = 0;
};
ProcessStat parse_process_stat(const std::string& text);
// Whether the text of /proc/PID/status is of a process that the kernel is writing a core dump of.
bool dumps_core(const std::string& status);

// Only for a process whose domain is that of own_process(), and not 0.
ProcessState look_at(const ProcessId& process);

// A sentence about the first rank that is stopped or held by a debugger (only if `stopped` asks for them) and
// the first whose process has ended; or "". Looks only at ranks of the domain of `rank`.
std::string find_lost(const std::vector<ProcessId>& processes, int rank, bool stopped);

}  // namespace mpi_gdr
