#include "transport/mpi_library.hpp"

#include <dlfcn.h>

#include "common/error.hpp"
#include "common/own_folder.hpp"

namespace mpigdr::mpi {
namespace {

Library* loaded = nullptr;
std::string loaded_abi;

std::string what_the_loader_says() {
  const char* const text = ::dlerror();
  return text ? text : "the dynamic loader does not say why";
}

// MPI 5.0, section 20.2: -1 from a library that has the function and another ABI.
bool has_standard_abi(void* mpi) {
  const auto version = reinterpret_cast<int (*)(int*, int*)>(::dlsym(mpi, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return version && version(&major, &minor) == 0 && major >= 1;
}

}  // namespace

void load_library(const std::string& path) {
  if (loaded) return;
  // Global, also where another library has opened it for itself alone: ours finds its symbols there.
  void* const mpi = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!mpi) fail(ErrorCode::System, "the MPI library ", path, " cannot be loaded: ", what_the_loader_says());
  if (!::dlsym(mpi, "MPI_Init_thread")) fail(ErrorCode::InvalidUsage, path, " is no MPI library");
  const bool open_mpi = ::dlsym(mpi, "ompi_mpi_comm_world");
  loaded_abi = has_standard_abi(mpi) ? "mpiabi" : open_mpi ? "openmpi" : "mpich";
  const std::string file = own_folder() + "libmpi_gdr_" + loaded_abi + ".so";
  void* const ours = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!ours)
    fail(ErrorCode::InvalidUsage, "mpi-gdr cannot use ", path, ": ", what_the_loader_says(),
         ". Not built for the ABI of this MPI? `mpi-gdr info` shows the ABIs of this build");
  loaded = reinterpret_cast<LibraryFunction>(::dlsym(ours, kLibrarySymbol))(mpi);
}

Library& library() {
  if (!loaded) fail(ErrorCode::InvalidUsage, "no MPI library is loaded in this process");
  return *loaded;
}

const std::string& abi() { return loaded_abi; }

}  // namespace mpigdr::mpi
