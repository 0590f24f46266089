// MPI in this process: started once, never stopped before the process ends (MPI cannot be started twice),
// shared with mpi4py whichever comes first. This header does without mpi.h.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "bootstrap/launch_mode.hpp"
#include "transport/network.hpp"

namespace mpigdr::mpi {

class MpiNetwork final : public Network {
 public:
  // Starts MPI, or checks and takes over the one that another library started: thread level, size, order of
  // ranks. What goes wrong inside MPI_Init cannot be thrown: the process then ends with kExitStuck (or MPI's
  // own code) and says why.
  void start(const NetworkOptions& options) override;
  bool started() const override;
  void renumber(const NetworkOptions& options) override;
  // Calls MPI_Finalize if start() had started MPI, nothing failed, this is no forked child, and all ranks
  // come here in time (under a launcher: rendezvous_timeout, since launchers may end a job of which one rank
  // left early). Otherwise it leaves MPI as it is. Ends the process if MPI_Finalize hangs.
  bool finalize(bool orderly, std::optional<std::uint64_t>& sum,
                const std::function<std::string()>& missing) noexcept override;
  bool ends_here() const noexcept override;
  void mark_failed(const char* why) noexcept override;
  const char* failure() const noexcept override;
  std::shared_ptr<const Membership> membership() const override;
  void on_abort(std::function<void(const std::string&)> announce) override;
  bool gpu_aware() const override;
  std::vector<std::string> summary() const override;
  std::unique_ptr<Transport> make_group(const GroupTransportOptions& options) override;
};

// Of this process. Leaked: it outlives atexit handlers.
MpiNetwork& network();

// For `mpi-gdr info` and error messages. Fields that need an initialised MPI are empty or -1 before it.
struct Info {
  std::string mpi_version;   // MPI_Get_library_version, first line
  std::string mpi_path;      // file of the loaded libmpi
  std::string abi;           // that this binary was built for: "MPICH ABI", "Open MPI"
  std::string standard;      // "5.0"
  std::string device;        // "ch4:ucx ofi", as MPICH names its network modules; empty: unknown
  std::string thread_level;  // "multiple", ...
  std::string processor;
  std::string initialized_by;  // "mpi-gdr", "another library in this process"
  std::string bootstrap;       // "launcher (mpiexec)", "store", "singleton", "taken over"
  bool finalized = false;
  int rank = -1, size = -1;
  int node = -1, nodes = -1, rank_on_node = -1, ranks_on_node = -1;
};
Info info();
MpiFamily family();

// Fortran handle of the group's own communicator, for mpi4py: `MPI.Comm.f2py(handle)`. Valid until close().
// Throws InvalidUsage for a transport of another network.
int handle(const Transport& transport);

// How ranks agree on an address before there is a store: collective over all ranks of the job, after start();
// blocks. `text` of `root` replaces everybody's. Ends the process with a message if a rank does not come
// within `timeout`.
void broadcast(std::string& text, int root, std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace mpigdr::mpi
