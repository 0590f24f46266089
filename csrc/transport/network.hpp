// Connects the processes of a job and makes the transports of their groups. start(), renumber() and
// finalize() block; one thread at a time calls them, without a lock that a store or another thread needs (the
// GIL). make_group() and the queries are thread-safe; queries never start anything.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/board.hpp"
#include "bootstrap/kv_store.hpp"
#include "bootstrap/process_id.hpp"
#include "common/env.hpp"
#include "transport/transport.hpp"

namespace mpi_gdr {

struct NetworkOptions {
  int rank = 0;  // torch's
  int size = 1;
  BootstrapMode bootstrap = BootstrapMode::Auto;
  std::shared_ptr<KvStore> store;  // may be null under an MPI launcher and for size 1
  // Prefix of all store keys, unique per attempt: run id, restart count, number of the default group.
  std::string key;
  std::function<void()> poll;  // called while this rank waits for others; may throw to end that
  std::chrono::milliseconds rendezvous_timeout{1'800'000};  // until all ranks have come to start()
  std::chrono::milliseconds init_timeout{300'000};          // for the library's start and the set-up after it
  std::chrono::milliseconds finalize_timeout{60'000};       // see finalize()
};

// The processes of the job, by rank.
struct Membership {
  int rank = -1;                     // of this process
  std::vector<ProcessId> processes;  // as many as there are ranks
  std::vector<int> node_of_rank;     // numbered from 0
  std::shared_ptr<Boards> boards;    // of this host; null: none

  int size() const { return static_cast<int>(processes.size()); }
  const ProcessId& own() const { return processes[static_cast<std::size_t>(rank)]; }
};

// For `mpi-gdr info` and error messages. Fields that need a started network are empty or -1 before.
struct NetworkInfo {
  std::string version;       // MPI_Get_library_version, first line
  std::string path;          // file of the loaded libmpi
  std::string abi;           // "MPICH ABI", "Open MPI", "MPI standard ABI"
  std::string standard;      // "5.0"
  std::string device;        // "ch4:ucx ofi", as MPICH names its network modules; empty: unknown
  std::string thread_level;  // "multiple", ...
  std::string processor;
  std::string initialized_by;  // "mpi-gdr", "another library in this process"
  std::string bootstrap;       // "launcher (mpiexec)", "store", "singleton", "taken over"
  int rank = -1, size = -1;
  int node = -1, nodes = -1, rank_on_node = -1, ranks_on_node = -1;
};

struct GroupTransportOptions {
  std::vector<int> ranks;  // of the job, in the order of their ranks in the group
  // 0..32767, equal on the members, different between groups that are made at the same time.
  int tag = 0;
  bool accelerator_channel = false;  // adds Channel::Accelerator; without it that channel throws
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  std::string name;  // of the group, for tools; may differ by rank
};

class Network {
 public:
  virtual ~Network() = default;

  // Later calls only check the size. Throws Timeout naming missing ranks; InvalidUsage, Remote, System.
  virtual void start(const NetworkOptions& options) = 0;
  virtual bool started() const = 0;
  // Called by all ranks before another world of the same size, maybe in another order. Throws as start().
  virtual void renumber(const NetworkOptions& options) = 0;
  // Whether finalize() may end the network: this process has started it and not ended it.
  virtual bool can_finalize() const noexcept = 0;
  // For an atexit hook: ends the network if all ranks call it within finalize_timeout, at most 30 s unless
  // `orderly` (false: the program ended with open groups, in which other ranks may wait). `missing` is called
  // meanwhile and returns why a rank never comes, or "". True if this call ended the network. `sum` becomes
  // the sum over all ranks, or nothing if a rank has none or is not orderly.
  virtual bool finalize(bool orderly, std::optional<std::uint64_t>& sum,
                        const std::function<std::string()>& missing) noexcept = 0;

  // Records a failure, so that finalize() does not wait for lost peers. `why`: a literal; the first is kept.
  virtual void mark_failed(const char* why) noexcept = 0;
  virtual const char* failure() const noexcept = 0;  // null: none
  bool failed() const noexcept { return failure() != nullptr; }

  // After start(), which opens this host's boards and begins the Signer's session. Results are immutable.
  virtual std::shared_ptr<const Membership> membership() const = 0;
  // `announce` is called when the library aborts this rank and no launcher ends the others.
  virtual void on_abort(std::function<void(const std::string&)> announce) = 0;
  // Whether the library declares that it takes addresses of device memory.
  virtual bool gpu_aware() const = 0;
  virtual NetworkInfo info() const = 0;
  // For the log.
  virtual std::vector<std::string> summary() const = 0;

  // Why `ranks` ranks cannot start with their launcher alone, and the remedy; "" if they can.
  virtual std::string explain_launcher_mismatch(int ranks) const { return ""; }
  // Replaces `text` by the root's, such as the address of a store. Collective over all ranks, after
  // start(); blocks. Ends the process if a rank does not come within `timeout`.
  virtual void broadcast(std::string& text, int root,
                         std::chrono::milliseconds timeout = std::chrono::minutes(5)) = 0;
  // Fortran handle of the group's communicator (`MPI.Comm.f2py`), until close(). Throws InvalidUsage.
  virtual int handle(const Transport& transport) const = 0;

  // Collective over the members. Blocks; ends the process if the library does not return within the timeout.
  virtual std::unique_ptr<Transport> make_group(const GroupTransportOptions& options) = 0;
};

}  // namespace mpi_gdr
