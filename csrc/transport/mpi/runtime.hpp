// MPI in this process: started once, never stopped before the process ends (MPI cannot be started twice),
// shared with mpi4py whichever comes first. This header does without mpi.h.
//
// initialize() and finalize() block; their caller holds no lock that a store or another thread needs (the
// GIL). They are called by one thread at a time. The queries are thread-safe and never initialise MPI.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/board.hpp"
#include "bootstrap/kv_store.hpp"
#include "bootstrap/launch_mode.hpp"
#include "bootstrap/process_id.hpp"

namespace mpigdr::mpi {

struct RuntimeOptions {
  int rank = 0;  // torch's
  int size = 1;
  BootstrapMode bootstrap = BootstrapMode::Auto;
  std::shared_ptr<KvStore> store;  // may be null under an MPI launcher and for size 1
  // Prefix of all store keys. Unique per attempt: run id, restart count and how often a default group was
  // created.
  std::string key;
  std::function<void()> poll;  // called while this rank waits for others, and may throw to end that
  std::chrono::milliseconds rendezvous_timeout{1'800'000};  // until all ranks have come to initialize()
  std::chrono::milliseconds init_timeout{300'000};          // for MPI_Init and the set-up after it
  std::chrono::milliseconds finalize_timeout{60'000};       // see finalize()
};

// Starts MPI, or checks and takes over the one that another library started: thread level, size, order of
// ranks. Called again, it only checks the size. Throws Timeout naming ranks that did not come;
// InvalidUsage, Remote or System saying what to change. What goes wrong inside MPI_Init cannot be thrown: the
// process then ends with kExitStuck (or MPI's own code) and says why.
void initialize(const RuntimeOptions& options);
bool initialized();

// In a process that has initialised MPI, before a world of the same size whose ranks may stand in another
// order: all of them come here. Nobody asks for rank(), processes() or boards() meanwhile. Throws as
// initialize() does.
void renumber(const RuntimeOptions& options);

// For an atexit hook. Calls MPI_Finalize if initialize() had started MPI, nothing failed, this is no forked
// child, and all ranks come here in time: within finalize_timeout (under a launcher: rendezvous_timeout,
// since launchers may end a job of which one rank left early), or 30 s if `orderly` is false: the program
// left while it still had groups, and the others may be waiting for it in one of them. Otherwise it leaves
// MPI as it is. True if MPI was finalised by this call. Never throws; ends the process if MPI_Finalize hangs.
// `missing` is asked now and then while this rank waits: text means that somebody will never come, and ends
// the waiting.
bool finalize(bool orderly = true, const std::function<std::string()>& missing = {}) noexcept;

// An operation failed or was given up: peers may be gone, and MPI_Finalize would wait for them.
void mark_failed() noexcept;
bool failed() noexcept;

// rank() and size() of the base communicator, and the node of each rank, numbered from 0. After initialize().
int rank();
int size();
const std::vector<int>& node_of_rank();
// Which process each rank is. After initialize().
const std::vector<ProcessId>& processes();
// Of this host. After initialize(); null where it has one rank, or shares no memory.
const std::shared_ptr<Boards>& boards();
// How MPI_Abort of this rank tells the others, where no launcher ends them. After initialize().
void on_abort(std::function<void(const std::string&)> announce);

// For `mpi-gdr info` and error messages. Fields that need an initialised MPI are empty or -1 before it.
struct RuntimeInfo {
  std::string mpi_version;   // MPI_Get_library_version, first line
  std::string mpi_path;      // file of the loaded libmpi
  std::string abi;           // that this binary was built for: "MPICH ABI", "Open MPI"
  std::string standard;      // "5.0"
  std::string device;        // "ch4:ucx ofi", as MPICH names its network modules; empty: not told
  std::string thread_level;  // "multiple", ...
  std::string processor;
  std::string initialized_by;  // "mpi-gdr", "another library in this process"
  std::string bootstrap;       // "launcher (mpiexec)", "store", "singleton", "taken over"
  bool finalized = false;
  int rank = -1, size = -1;
  int node = -1, nodes = -1, rank_on_node = -1, ranks_on_node = -1;
};
RuntimeInfo info();
MpiFamily family();

}  // namespace mpigdr::mpi
