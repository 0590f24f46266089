// Asks the library whether it is "GPU-aware", by functions that MPI 3.1 does not have.
#include <dlfcn.h>
#include <mpi.h>

#include <cstring>
#include <optional>

#include "bootstrap/environment.hpp"
#include "transport/mpi/mpi_network.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

template <typename F>
F symbol(const char* name) {
  return reinterpret_cast<F>(::dlsym(state().handle, name));
}

// MPI 4.1, section 12.4.3: the memory kinds that the library supports, such as "mpi,system,cuda:device".
bool supports_cuda_memory() {
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

}  // namespace

bool MpiNetwork::gpu_aware() const {
  std::optional<bool> answer;
  // MPICH 4 and its derivatives; kind 0 of GPU is CUDA's (mpi_proto.h: MPIX_GPU_SUPPORT_CUDA).
  if (const auto query = symbol<int (*)(int, int*)>("MPIX_GPU_query_support");
      query && family() == MpiFamily::Mpich) {
    int flag = 0;
    answer = query(0, &flag) == MPI_SUCCESS && flag;
  }
  // Open MPI, MVAPICH2-GDR.
  if (const auto query = symbol<int (*)()>("MPIX_Query_cuda_support"); query && answer != true)
    answer = query() == 1;
  if (!answer && supports_cuda_memory()) answer = true;
  const NetworkInfo i = info();
  return is_gpu_aware(i.version, i.device, answer);
}

}  // namespace mpi_gdr::mpi
