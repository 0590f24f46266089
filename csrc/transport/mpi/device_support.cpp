// Whether the library is "GPU-aware". Only a definite answer counts: a wrong guess crashes the library.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "transport/mpi/mpi_network.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

template <typename F>
F symbol(const char* name) {
  return reinterpret_cast<F>(::dlsym(state().handle, name));
}

// MPI 4.1, section 12.4.3: the memory kinds that the library was started for: "mpi,system,cuda:device".
bool allocates_cuda() {
  const auto get_info = symbol<int (*)(MPI_Comm, MPI_Info*)>("MPI_Comm_get_info");
  const auto get_string = symbol<int (*)(MPI_Info, const char*, int*, char*, int*)>("MPI_Info_get_string");
  MPI_Info info = MPI_INFO_NULL;
  if (!get_info || !get_string || get_info(MPI_COMM_WORLD, &info) != MPI_SUCCESS) return false;
  char kinds[1024] = "";
  int length = sizeof kinds, found = 0;
  const int code = get_string(info, "mpi_memory_alloc_kinds", &length, kinds, &found);
  MPI_Info_free(&info);
  return code == MPI_SUCCESS && found && std::strstr(kinds, "cuda");
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value && *value && std::strcmp(value, "0") != 0;
}

}  // namespace

bool MpiNetwork::gpu_aware() const {
  // MPICH 4 and its derivatives; kind 0 of GPU is CUDA's (mpi_proto.h: MPIX_GPU_SUPPORT_CUDA).
  if (const auto query = symbol<int (*)(int, int*)>("MPIX_GPU_query_support");
      query && family() == MpiFamily::Mpich) {
    int flag = 0;
    if (query(0, &flag) == MPI_SUCCESS && flag) return true;
  }
  // Open MPI, MVAPICH2-GDR.
  if (const auto query = symbol<int (*)()>("MPIX_Query_cuda_support"); query && query() == 1) return true;
  // Their libraries take such addresses if, and only if, these are set; not so MVAPICH 4's MVP_ENABLE_GPU.
  constexpr const char* kSwitches[] = {"MV2_USE_CUDA", "MVP_USE_CUDA", "MPICH_GPU_SUPPORT_ENABLED",
                                       "I_MPI_OFFLOAD"};
  return allocates_cuda() || std::any_of(std::begin(kSwitches), std::end(kSwitches), is_set);
}

}  // namespace mpi_gdr::mpi
