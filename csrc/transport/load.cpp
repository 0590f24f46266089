#include "transport/load.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "common/error.hpp"
#include "common/own_folder.hpp"

namespace mpi_gdr {
namespace {

// MPI 5.0, section 20.2: -1 from a library that has the function but another ABI.
bool has_standard_abi(void* mpi) {
  const auto version = reinterpret_cast<int (*)(int*, int*)>(::dlsym(mpi, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return version && version(&major, &minor) == 0 && major >= 1;
}

// Every network: its name, and whether it runs on this library. The first match is used.
constexpr struct {
  const char* name;
  bool (*stands_on)(void* library);
} kNetworks[] = {
    {"mpiabi", has_standard_abi},
    {"openmpi", [](void* library) { return ::dlsym(library, "ompi_mpi_comm_world") != nullptr; }},
    {"mpich", [](void* library) { return ::dlsym(library, "MPI_Init_thread") != nullptr; }},
};

Network* loaded = nullptr;
std::string loaded_name;

std::string loader_error() {
  const char* const text = ::dlerror();
  return text ? text : "the dynamic loader gives no reason";
}

}  // namespace

void load_network(const std::string& path) {
  if (loaded) return;
  // Global even if another library has opened it locally: our network finds MPI's symbols there.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) fail(ErrorCode::System, "the MPI library ", path, " cannot be loaded: ", loader_error());
  const auto* const found =
      std::ranges::find_if(kNetworks, [&](const auto& n) { return n.stands_on(library); });
  if (found == std::end(kNetworks)) fail(ErrorCode::InvalidUsage, path, " is not an MPI library");
  loaded_name = found->name;
  const std::string file = own_folder() + "libmpi_gdr_" + loaded_name + ".so";
  void* const ours = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!ours)
    fail(ErrorCode::InvalidUsage, "mpi-gdr cannot use ", path, ": ", loader_error(),
         ". Not built for the ABI of this MPI? `mpi-gdr info` shows the ABIs of this build");
  loaded = reinterpret_cast<NetworkFunction>(::dlsym(ours, kNetworkSymbol))(library);
}

Network& network() {
  if (!loaded) fail(ErrorCode::InvalidUsage, "no MPI library is loaded in this process");
  return *loaded;
}

const std::string& network_name() { return loaded_name; }

}  // namespace mpi_gdr
