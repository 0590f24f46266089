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
enum class BootstrapMode : std::uint8_t { Auto, Launcher, Store };

class Env {
 public:
  enum class Choice : std::uint8_t { Auto, On, Off };

  static const Env& get();

  // One field a variable; env.cpp has what each allows and means. Equal on all ranks: what `=` marks.
  LogLevel debug = LogLevel::Warn;                   // MPI_GDR_DEBUG
  bool check_calls = false;                          // = MPI_GDR_DEBUG=DETAIL
  std::string debug_file;                            // MPI_GDR_DEBUG_FILE; "": standard error
  std::optional<double> timeout_seconds;             // MPI_GDR_TIMEOUT; overrides the timeout of every group
  double heartbeat_seconds = 300;                    // MPI_GDR_HEARTBEAT; 0: no rank is given up
  double orphan_seconds = 60;                        // MPI_GDR_ORPHAN_GRACE; 0: no limit
  BootstrapMode bootstrap = BootstrapMode::Auto;     // = MPI_GDR_BOOTSTRAP
  std::string secret;                                // = MPI_GDR_SECRET: 32 bytes, or ""; never shown
  std::string mpi_library;                           // MPI_GDR_MPI_LIBRARY; read by the Python side
  std::string master_addr;                           // MPI_GDR_MASTER_ADDR; read by the Python side
  bool as_gloo = false;                              // MPI_GDR_AS; read by the Python side
  int ranks_per_gpu = 0;                             // MPI_GDR_RANKS_PER_GPU; read by the Python side
  Bits bits = Bits::Any;                             // = MPI_GDR_BITS
  std::string algorithm[kCollectiveCount];           // = MPI_GDR_<COLLECTIVE>_ALGO
  std::string select;                                // = MPI_GDR_SELECT
  std::string tuning_file;                           // = MPI_GDR_TUNING
  bool adapt = true;                                 // = MPI_GDR_ADAPT
  std::uint64_t chunk_bytes = 256 * 1024;            // = MPI_GDR_CHUNK_BYTES
  int lanes = 4;                                     // = MPI_GDR_LANES
  int ranks_per_node = 0;                            // = MPI_GDR_RANKS_PER_NODE
  int max_in_flight = 32;                            // MPI_GDR_MAX_IN_FLIGHT
  int nap_us = 200;                                  // MPI_GDR_NAP_US
  Choice idle_progress = Choice::Auto;               // MPI_GDR_IDLE_PROGRESS
  bool node_memory = true;                           // MPI_GDR_SHM; off anywhere: off
  MessagePath messages = MessagePath::Auto;          // MPI_GDR_P2P; Mpi anywhere, or no shared memory: Mpi
  std::optional<std::uint64_t> group_memory;         // MPI_GDR_GROUP_MEMORY
  std::optional<std::uint64_t> device_group_memory;  // MPI_GDR_DEVICE_GROUP_MEMORY
  bool blocking_wait = false;                        // MPI_GDR_BLOCKING_WAIT
  bool end_on_device_failure = true;                 // MPI_GDR_ASYNC_ERROR=exit
  Choice gpu_aware = Choice::Off;                    // MPI_GDR_GPU_AWARE; off anywhere: off
  bool device_sharing = true;                        // MPI_GDR_IPC; off anywhere: off
  std::string simd = "auto";                         // MPI_GDR_SIMD
  Choice cuda = Choice::Auto;                        // MPI_GDR_CUDA
  int flight_log = 2000;                             // MPI_GDR_FLIGHT_LOG
  std::string flight_dir;       // MPI_GDR_FLIGHT_DIR; "": a folder per job under $TMPDIR or /tmp
  int flight_signal = SIGUSR2;  // MPI_GDR_FLIGHT_SIGNAL; 0: off
  std::string trace;            // MPI_GDR_TRACE; "": none
  int trace_events = 32768;     // MPI_GDR_TRACE_EVENTS

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
