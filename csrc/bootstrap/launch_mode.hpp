// How MPI starts. decide() depends on the proposals only: all ranks return or throw alike (texts may differ).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/process_id.hpp"
#include "common/env.hpp"

namespace mpi_gdr {

enum class MpiFamily {
  Mpich,    // the MPICH ABI: MPICH, MVAPICH, Intel MPI, Cray MPICH; can start from our PMI server
  OpenMpi,  // needs a launcher: PMIx, or Slurm's PMI-2 up to version 4
};

enum class Bootstrap {
  Launcher,   // the environment of an MPI launcher, unchanged
  Store,      // our PMI server
  Singleton,  // one rank: MPI_Init without any launcher's variables
};

template <>
inline constexpr auto kNames<Bootstrap> = names("launcher", "store", "singleton");

// A launcher whose process-management interface this MPI can use in this process.
struct Launcher {
  std::string name;
  int rank = -1;
  int size = -1;  // -1: unknown
};
std::optional<Launcher> find_launcher(MpiFamily family);

// Why `size` ranks cannot start MPI with their launcher alone, and the remedy; or "". Reads the environment.
std::string explain_launcher_mismatch(MpiFamily family, BootstrapMode request, const std::string& mpi_version,
                                      int size);

struct Proposal {
  std::string error;  // why this rank cannot continue; all ranks then raise
  BootstrapMode request = BootstrapMode::Auto;
  std::optional<Launcher> launcher;
  bool elastic = false;      // started by torchrun: launcher variables belong to its agent
  bool initialised = false;  // another library (mpi4py) has initialised MPI; `error` is set if unusable
  std::string host;          // host_identity()
  std::string namespaces;    // namespaces()
  std::string nonce;         // random; that of rank 0 names the job
  std::string mpi_version;   // first line of the library's version
  ProcessId process;         // own_process()
  std::optional<std::uint64_t> shared_memory;  // free_shared_memory()
};
Proposal propose(MpiFamily family, BootstrapMode request);

std::string serialise(const Proposal& proposal);
Proposal parse_proposal(const std::string& text);

// How the job starts MPI, or joins an MPI that another library started. Throws InvalidUsage or Remote.
Bootstrap decide(MpiFamily family, const std::vector<Proposal>& proposals);

}  // namespace mpi_gdr
