// How MPI shall be started: by the launcher's own interface, or by our PMI server over the store. decide() is
// a pure function of the proposals of all ranks, and so returns, or throws, the same on all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/process_id.hpp"
#include "common/env.hpp"

namespace mpi_gdr {

enum class MpiFamily {
  Mpich,    // the MPICH ABI: MPICH, MVAPICH, Intel MPI, Cray MPICH. Starts from our PMI server
  OpenMpi,  // speaks PMIx only: needs a launcher
};

enum class Bootstrap {
  Launcher,   // the environment of an MPI launcher, as it stands
  Store,      // our PMI server
  Singleton,  // one rank: plain MPI_Init without any launcher's variables
};

template <>
inline constexpr auto kNames<Bootstrap> = names("launcher", "store", "singleton");

// A launcher whose process-management interface this MPI can use from this process.
struct Launcher {
  std::string name;
  int rank = -1;
  int size = -1;  // -1: it does not say
};
std::optional<Launcher> find_launcher(MpiFamily family);

// Why `size` ranks cannot start MPI with their launcher alone, and the cure; "" if they can. Reads the
// environment. `mpi_version`: the first line of the library's version.
std::string objection_to_launcher(MpiFamily family, BootstrapMode request, const std::string& mpi_version,
                                  int size);

struct Proposal {
  std::string error;  // this rank cannot go on, and why; all ranks then raise
  BootstrapMode request = BootstrapMode::Auto;
  std::optional<Launcher> launcher;
  bool elastic = false;      // started by torchrun: launcher variables belong to its agent
  bool initialised = false;  // another library (mpi4py) has initialised an MPI of the right size
  std::string host;          // host_identity()
  std::string namespaces;    // namespaces()
  std::string nonce;         // that of rank 0 names the job
  std::string mpi_version;   // first line of the library's version
  ProcessId process;         // own_process()
  std::optional<std::uint64_t> shared_memory;  // free_shared_memory()
};
Proposal propose(MpiFamily family, BootstrapMode request);

std::string serialise(const Proposal& proposal);
Proposal parse_proposal(const std::string& text);

// For those ranks where MPI is not initialised yet. Throws InvalidUsage or Remote.
Bootstrap decide(MpiFamily family, const std::vector<Proposal>& proposals);

}  // namespace mpi_gdr
