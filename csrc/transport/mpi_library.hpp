// MPI in this process, behind an interface without mpi.h. transport/mpi implements it in one shared library
// an ABI: MPICH's, Open MPI's, and that of the MPI 5.0 standard. None is linked with an MPI: load_library()
// opens the MPI that it is given, for all to see, and then the library of its ABI, which lies beside the
// core.
#pragma once

#include <chrono>
#include <string>

#include "bootstrap/launch_mode.hpp"
#include "transport/network.hpp"

namespace mpigdr::mpi {

// For `mpi-gdr info` and error messages. Fields that need an initialised MPI are empty or -1 before it.
struct Info {
  std::string mpi_version;   // MPI_Get_library_version, first line
  std::string mpi_path;      // file of the loaded libmpi
  std::string abi;           // "MPICH ABI", "Open MPI", "MPI standard ABI"
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
class Library : public Network {
 public:
  virtual Info info() const = 0;
  virtual MpiFamily family() const = 0;
  // Fortran handle of the group's own communicator, for mpi4py: `MPI.Comm.f2py(handle)`. Valid until close().
  // Throws InvalidUsage for a transport of another network.
  virtual int handle(const Transport& transport) const = 0;
  // How ranks agree on an address before there is a store: collective over all ranks of the job, after
  // start(); blocks. `text` of `root` replaces everybody's. Ends the process with a message if a rank does
  // not come within `timeout`.
  virtual void broadcast(std::string& text, int root,
                         std::chrono::milliseconds timeout = std::chrono::minutes(5)) = 0;
};

// `path`: of the libmpi to use. For the life of the process; again: without effect. Throws System where it
// cannot be loaded, InvalidUsage where none of ours is of its ABI. By one thread at a time.
void load_library(const std::string& path);
// Throws InvalidUsage before load_library().
Library& library();
// "mpich", "openmpi" or "mpiabi": in the names of the libraries that are built once an ABI. Empty before
// load_library().
const std::string& abi();

// What each of the three exports. `mpi`: dlopen's handle of the MPI.
using LibraryFunction = Library* (*)(void* mpi);
constexpr const char* kLibrarySymbol = "mpi_gdr_mpi_library";

}  // namespace mpigdr::mpi
