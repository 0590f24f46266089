// Preloaded into ranks: an MPI library that accepts GPU addresses and, like such libraries, copies by CUDA
// calls on its own stream when a message is posted. The installed MPI library moves the bytes, since it can
// read the software GPU's memory. With MPI_CALLS_CUDA_REFUSES it copies nothing, and sends of at least that
// many bytes from a GPU fail.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// From the loaded library whose name begins like this; null: not loaded.
void* find(const char* library, const char* function) {
  struct Search {
    const char* name;
    std::string path;
  } search{library, ""};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& it = *static_cast<Search*>(data);
        const char* const slash = std::strrchr(info->dlpi_name, '/');
        if (slash && std::strncmp(slash + 1, it.name, std::strlen(it.name)) == 0) it.path = info->dlpi_name;
        return 0;
      },
      &search);
  if (search.path.empty()) return nullptr;
  return dlsym(dlopen(search.path.c_str(), RTLD_LAZY | RTLD_NOLOAD), function);
}

void expect(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "mpi_calls_cuda: %s: status %d\n", call, static_cast<int>(status));
  std::abort();
}
#define CUDA(name, ...) \
  expect(reinterpret_cast<decltype(&name)>(find("libcudart.so", #name))(__VA_ARGS__), #name)

// The device's number; -1: host memory.
int device_of(const void* memory) {
  if (!find("libcudart.so", "cudaMemcpyAsync")) return -1;
  cudaPointerAttributes attributes;
  CUDA(cudaPointerGetAttributes, &attributes, memory);
  return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
}

int refused_bytes() {
  static const char* const from = std::getenv("MPI_CALLS_CUDA_REFUSES");
  return from ? std::atoi(from) : 0;
}

// Copies one byte if it is on a device.
void touch(const void* memory) {
  const int device = device_of(memory);
  if (device < 0 || refused_bytes() > 0) return;
  static thread_local cudaStream_t stream = nullptr;
  CUDA(cudaSetDevice, device);
  if (!stream) CUDA(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
  char byte;
  CUDA(cudaMemcpyAsync, &byte, memory, 1, cudaMemcpyDefault, stream);
  CUDA(cudaStreamSynchronize, stream);
}

template <typename Function, typename... Arguments>
int call(const char* name, Arguments... arguments) {
  static const auto function = reinterpret_cast<Function>(find("libmpi.so", name));
  return function(arguments...);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int MPI_Isend(const void* data, int count,
                                                                MPI_Datatype type, int peer, int tag,
                                                                MPI_Comm comm, MPI_Request* request) {
  if (count > 0) touch(data);
  if (refused_bytes() > 0 && count >= refused_bytes() && device_of(data) >= 0) return MPI_ERR_OTHER;
  return call<decltype(&MPI_Isend)>("PMPI_Isend", data, count, type, peer, tag, comm, request);
}

extern "C" __attribute__((visibility("default"))) int MPI_Irecv(void* data, int count, MPI_Datatype type,
                                                                int peer, int tag, MPI_Comm comm,
                                                                MPI_Request* request) {
  if (count > 0) touch(data);
  return call<decltype(&MPI_Irecv)>("PMPI_Irecv", data, count, type, peer, tag, comm, request);
}
