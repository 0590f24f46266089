// Lets kernels of every GPU, in another process, read and write the memory of every GPU by CUDA IPC: peers
// BYTES. Prints JSON: a line for each GPU, one for each pair (rates in GB/s for BYTES / 256 and BYTES); then
// a summary.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::printf("error: %s: %s\n", what, cudaGetErrorString(code));
  std::fflush(stdout);
  std::_Exit(1);
}
#define CUDA(call) check(call, #call)

__global__ void fill(unsigned* data, std::size_t count, unsigned value) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    data[i] = value + static_cast<unsigned>(i);
}
__global__ void differences(const unsigned* data, std::size_t count, unsigned value, unsigned* found) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    if (data[i] != value + static_cast<unsigned>(i)) atomicAdd(found, 1u);
}
__global__ void copy(uint4* to, const uint4* from, std::size_t count) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = from[i];
}

struct Task {
  int owner, peer;
  cudaIpcMemHandle_t handle;
};
struct Result {
  char error[80];  // empty: the rest is valid
  bool right;      // what was read
  double read[2], write[2];
};

double rate(void* to, const void* from, std::size_t bytes) {
  constexpr int kCopies = 10;
  std::chrono::steady_clock::time_point begin;
  for (int i = -1; i < kCopies; ++i) {
    copy<<<1024, 256>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from), bytes / sizeof(uint4));
    if (i >= 0) continue;
    CUDA(cudaDeviceSynchronize());
    begin = std::chrono::steady_clock::now();
  }
  CUDA(cudaDeviceSynchronize());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return kCopies * static_cast<double>(bytes) / seconds.count() / 1e9;
}

bool holds(const void* data, std::size_t bytes, unsigned value) {
  unsigned *found, wrong = 0;
  CUDA(cudaMalloc(&found, sizeof *found));
  CUDA(cudaMemset(found, 0, sizeof *found));
  differences<<<256, 256>>>(static_cast<const unsigned*>(data), bytes / 4, value, found);
  CUDA(cudaMemcpy(&wrong, found, sizeof wrong, cudaMemcpyDeviceToHost));
  CUDA(cudaFree(found));
  return wrong == 0;
}

// The values in the owner's memory, before and after its peer has written.
unsigned value_of(const Task& task, bool after) { return 1000003u * (task.owner * 64 + task.peer) + after; }

Result access(const Task& task, std::size_t bytes) {
  Result result{};
  void *memory, *own;
  CUDA(cudaSetDevice(task.peer));
  if (const cudaError_t code = cudaIpcOpenMemHandle(&memory, task.handle, cudaIpcMemLazyEnablePeerAccess)) {
    std::snprintf(result.error, sizeof result.error, "%s", cudaGetErrorString(code));
    cudaGetLastError();
    return result;
  }
  CUDA(cudaMalloc(&own, bytes));
  const std::size_t sizes[] = {bytes / 256, bytes};
  for (int i = 0; i < 2; ++i) result.read[i] = rate(own, memory, sizes[i]);
  result.right = holds(own, bytes, value_of(task, false));
  fill<<<256, 256>>>(static_cast<unsigned*>(own), bytes / 4, value_of(task, true));
  for (int i = 0; i < 2; ++i) result.write[i] = rate(memory, own, sizes[i]);
  CUDA(cudaFree(own));
  CUDA(cudaIpcCloseMemHandle(memory));
  return result;
}

void describe(int device) {
  using Query = CUresult (*)(int*, CUdevice_attribute, CUdevice);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto query = driver ? reinterpret_cast<Query>(dlsym(driver, "cuDeviceGetAttribute")) : nullptr;
  cudaDeviceProp about;
  CUDA(cudaGetDeviceProperties(&about, device));
  std::printf("{\"gpu\": %d, \"name\": \"%s\", \"multiprocessors\": %d", device, about.name,
              about.multiProcessorCount);
#define ATTRIBUTE(name)                                                                      \
  if (int value; query && query(&value, CU_DEVICE_ATTRIBUTE_##name, device) == CUDA_SUCCESS) \
  std::printf(", \"%s\": %d", #name, value)
  ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR);
  ATTRIBUTE(CAN_USE_64_BIT_STREAM_MEM_OPS);
  ATTRIBUTE(GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  ATTRIBUTE(GPU_DIRECT_RDMA_WRITES_ORDERING);
  ATTRIBUTE(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  ATTRIBUTE(MPS_ENABLED);
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : std::size_t{256} << 20;
  int down[2], up[2];
  if (pipe(down) || pipe(up)) return 1;
  const pid_t child = fork();  // before CUDA starts in either
  if (child == 0) {
    close(down[1]);
    for (Task task; read(down[0], &task, sizeof task) == sizeof task;) {
      const Result result = access(task, bytes);
      if (write(up[1], &result, sizeof result) != sizeof result) break;
    }
    std::_Exit(0);
  }
  close(up[1]);
  int count, pairs = 0, right = 0, refused = 0;
  CUDA(cudaGetDeviceCount(&count));
  for (int device = 0; device < count; ++device) describe(device);
  for (int owner = 0; owner < count; ++owner) {
    void* memory;
    Task task{owner};
    CUDA(cudaSetDevice(owner));
    CUDA(cudaMalloc(&memory, bytes));
    CUDA(cudaIpcGetMemHandle(&task.handle, memory));
    for (task.peer = 0; task.peer < count; ++task.peer, ++pairs) {
      int can = 1;
      if (task.peer != owner) CUDA(cudaDeviceCanAccessPeer(&can, task.peer, owner));
      fill<<<256, 256>>>(static_cast<unsigned*>(memory), bytes / 4, value_of(task, false));
      CUDA(cudaDeviceSynchronize());
      Result result;
      if (write(down[1], &task, sizeof task) != sizeof task ||
          read(up[0], &result, sizeof result) != sizeof result) {
        std::printf("error: the other process has ended\n");
        return 1;
      }
      const bool good = !*result.error && result.right && holds(memory, bytes, value_of(task, true));
      right += good;
      refused += *result.error != 0;
      std::printf(
          "{\"owner\": %d, \"peer\": %d, \"can_access\": %d, \"error\": \"%s\", \"right\": %d, "
          "\"read\": [%.4g, %.4g], \"write\": [%.4g, %.4g]}\n",
          owner, task.peer, can, result.error, good, result.read[0], result.read[1], result.write[0],
          result.write[1]);
      std::fflush(stdout);
    }
    CUDA(cudaFree(memory));
  }
  close(down[1]);
  waitpid(child, nullptr, 0);
  std::printf(
      "what the second process read and wrote is right for %d of %d pairs of GPUs; %d have no access\n",
      right, pairs, refused);
  return right + refused != pairs;
}
