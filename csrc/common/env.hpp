// Every MPI_GDR_* variable, in one place. Read once, at the first get(); immutable and thread-safe
// afterwards. A bad value is an Error(InvalidUsage) that names the variable; an unknown MPI_GDR_* name is
// reported by unknown_variables() with the nearest known one, and warned about by rank 0.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/types.hpp"

namespace mpigdr {

enum class LogLevel : std::uint8_t { Warn, Info, Trace };
enum class MessagePath : std::uint8_t { Auto, Shm, Mpi };
enum class CudaSupport : std::uint8_t { Auto, On, Off };
enum class BootstrapMode : std::uint8_t { Auto, Launcher, Store };

class Env {
 public:
  enum class Choice : std::uint8_t { Auto, On, Off };

  static const Env& get();

  // MPI_GDR_DEBUG=WARN|INFO|DETAIL|TRACE. INFO prints one block at start-up, TRACE one line per operation.
  LogLevel debug = LogLevel::Warn;
  // DETAIL logs like INFO, and ranks compare their collectives before they run them. Equal on all ranks.
  bool check_calls = false;
  // MPI_GDR_DEBUG_FILE: where the log goes; %h is the host name, %p the process id. Default: standard error.
  std::string debug_file;
  // MPI_GDR_TIMEOUT: seconds; overrides the timeout of every group. Default: what init_process_group was
  // given.
  std::optional<double> timeout_seconds;
  // MPI_GDR_HEARTBEAT: seconds after which a rank that is stopped, or whose host is silent, counts as lost;
  // 0: never. It is reported after 10 s. Processes that have ended are always noticed at once.
  double heartbeat_seconds = 300;
  // MPI_GDR_ORPHAN_GRACE: seconds after which a rank ends when the torchrun agent that started it has ended;
  // 0: never.
  double orphan_seconds = 60;
  // MPI_GDR_BOOTSTRAP=auto|launcher|store: how MPI starts, see docs/bootstrap.md.
  BootstrapMode bootstrap = BootstrapMode::Auto;
  // MPI_GDR_SECRET: 32 bytes, "" if there are none: what ranks tell each other before MPI runs is signed with
  // it. Equal on all ranks. The only value that is shown to nobody.
  std::string secret;
  // MPI_GDR_MASTER_ADDR: the address that rank 0 announces under an MPI launcher when MASTER_ADDR is not set.
  // Read by the Python side.
  std::string master_addr;
  // MPI_GDR_RANKS_PER_GPU: so many ranks of a node share each of its GPUs; 0: GPUs as they are. Read by the
  // Python side.
  int ranks_per_gpu = 0;
  // MPI_GDR_<COLLECTIVE>_ALGO: the algorithm to use instead of the table's choice, see docs/algorithms.md.
  std::string algorithm[kCollectiveCount];
  // MPI_GDR_SELECT: rows of the selection table, separated by #: "all_reduce:0-4K:flag#barrier:native".
  std::string select;
  // MPI_GDR_TUNING: file with such rows, one a line, as `mpi-gdr tune` writes them; see docs/tuning.md.
  std::string tuning_file;
  // MPI_GDR_CHUNK_BYTES: target size of one message of a pipelined algorithm. Must be equal on all ranks.
  std::uint64_t chunk_bytes = 256 * 1024;
  // MPI_GDR_LANES: at most this many independent lanes per operation, 1..16. Must be equal on all ranks.
  int lanes = 4;
  // MPI_GDR_RANKS_PER_NODE: take each so many consecutive ranks for a node; 0: as they are. Must be equal on
  // all ranks.
  int ranks_per_node = 0;
  // MPI_GDR_MAX_IN_FLIGHT: collectives of one group that may run at the same time on a rank; later ones wait
  // in order.
  int max_in_flight = 32;
  // MPI_GDR_NAP_US: longest nap of the progress thread while the training thread computes, in microseconds.
  int nap_us = 200;
  // MPI_GDR_SHM=on|off: whether the ranks of a node share memory, besides what MPI does. Off anywhere: off.
  bool node_memory = true;
  // MPI_GDR_P2P=auto|shm|mpi: how messages between ranks of a node travel; auto: long ones by the kernel's
  // copy, where there is one; shm: never; each rank says what it does. Mpi anywhere, or no shared memory:
  // mpi.
  MessagePath messages = MessagePath::Auto;
  // MPI_GDR_GROUP_MEMORY: bytes of this rank's tensors that the others of its node may map; 0: none. Default:
  // a quarter of the host's memory.
  std::optional<std::uint64_t> group_memory;
  // MPI_GDR_DEVICE_GROUP_MEMORY: the same of tensors on each of its devices; 0: none. Default: no limit.
  std::optional<std::uint64_t> device_group_memory;
  // MPI_GDR_BLOCKING_WAIT=on|off: Work.wait() blocks the CPU for tensors of a device, too.
  bool blocking_wait = false;
  // MPI_GDR_ASYNC_ERROR=exit|raise: what follows if an operation on a device fails that nobody waits for.
  bool end_on_device_failure = true;
  // MPI_GDR_GPU_AWARE=off|auto|on: whether MPI is given addresses of a device's memory, if a try goes well;
  // auto: if it says that it takes them. Off on any rank of a group: off.
  Choice gpu_aware = Choice::Off;
  // MPI_GDR_IPC=on|off: whether devices of a node share staging memory. Off on any rank of a group: off.
  bool device_sharing = true;
  // MPI_GDR_SIMD=auto|baseline|avx2|avx512|avx512_bf16: instructions of the reduction kernels.
  std::string simd = "auto";
  // MPI_GDR_CUDA=auto|on|off: whether the CUDA library is loaded (device/load.hpp); on: an error where it
  // cannot be used.
  CudaSupport cuda = CudaSupport::Auto;
  // MPI_GDR_FLIGHT_LOG: how many operations the flight log keeps; 0: no log.
  int flight_log = 2000;
  // MPI_GDR_FLIGHT_DIR: where its files are written. Default: a folder per job under $TMPDIR or /tmp.
  std::string flight_dir;
  // MPI_GDR_FLIGHT_SIGNAL=SIGUSR1|SIGUSR2|off: on this signal the log is written, unless the program uses the
  // signal itself. 0: off.
  int flight_signal = SIGUSR2;

  // MPI_GDR_TRACE: a Chrome trace of the engine, a file per rank; %r is the rank, %h the host's name, %p the
  // process id. Default: none.
  std::string trace;
  // MPI_GDR_TRACE_EVENTS: operations, and rounds of their lanes, that the trace keeps.
  int trace_events = 32768;

  struct Variable {
    std::string name, default_value, allowed, description;
    std::string value;  // in force; of a secret "(set)"
    bool from_environment = false;
  };
  // All known variables with what is in force, for `mpi-gdr info` and docs/environment.md.
  std::vector<Variable> table() const;

  // Reads from `lookup` (name -> value or nullptr) instead of the process environment: for tests.
  using Lookup = std::function<const char*(const char*)>;
  explicit Env(const Lookup& lookup);

  // {unknown name, nearest known name} for each MPI_GDR_* in a NULL-terminated environment block, but for
  // what setup.py reads.
  static std::vector<std::pair<std::string, std::string>> unknown_variables(const char* const* environment);

  // The variable that overrides a collective's algorithm, e.g. "MPI_GDR_ALLREDUCE_ALGO".
  static std::string algorithm_variable(Collective collective);

 private:
  Lookup lookup_;
};

}  // namespace mpigdr
