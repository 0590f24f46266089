// CUDA IPC between two processes on one GPU: ipc BYTES. The second writes into memory that the first has
// allocated, and times copies from there. Prints one line.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#define CUDA(call)                                                     \
  do {                                                                 \
    const cudaError_t code = (call);                                   \
    if (code != cudaSuccess) {                                         \
      std::printf("error: %s: %s\n", #call, cudaGetErrorString(code)); \
      std::fflush(stdout);                                             \
      std::_Exit(1);                                                   \
    }                                                                  \
  } while (0)

namespace {

__global__ void fill(unsigned* data, std::size_t count, unsigned value) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    data[i] = value + static_cast<unsigned>(i);
}
__global__ void differences(const unsigned* data, std::size_t count, unsigned value, unsigned* found) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    if (data[i] != value + static_cast<unsigned>(i)) atomicAdd(found, 1u);
}

void second(int from, int to, std::size_t bytes) {
  cudaIpcMemHandle_t handle;
  if (read(from, &handle, sizeof handle) != sizeof handle) std::_Exit(1);
  void *peer, *own;
  CUDA(cudaIpcOpenMemHandle(&peer, handle, cudaIpcMemLazyEnablePeerAccess));
  CUDA(cudaMalloc(&own, bytes));
  fill<<<256, 256>>>(static_cast<unsigned*>(peer), bytes / 4, 7u);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(own, peer, bytes, cudaMemcpyDefault));
  CUDA(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kCopies = 20;
  for (int i = 0; i < kCopies; ++i) CUDA(cudaMemcpyAsync(own, peer, bytes, cudaMemcpyDefault));
  CUDA(cudaDeviceSynchronize());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double rate = 2.0 * kCopies * static_cast<double>(bytes) / seconds / 1e9;
  CUDA(cudaIpcCloseMemHandle(peer));
  if (write(to, &rate, sizeof rate) != sizeof rate) std::_Exit(1);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : std::size_t{64} << 20;
  int down[2], up[2];
  if (pipe(down) || pipe(up)) return 1;
  const pid_t child = fork();  // before CUDA starts in either
  if (child == 0) second(down[0], up[1], bytes);
  void* data;
  unsigned* found;
  CUDA(cudaMalloc(&data, bytes));
  CUDA(cudaMalloc(&found, sizeof *found));
  CUDA(cudaMemset(found, 0, sizeof *found));
  cudaIpcMemHandle_t handle;
  CUDA(cudaIpcGetMemHandle(&handle, data));
  double rate = 0;
  close(up[1]);
  if (write(down[1], &handle, sizeof handle) != sizeof handle ||
      read(up[0], &rate, sizeof rate) != sizeof rate) {
    std::printf("error: the second process gave up\n");
    return 1;
  }
  int status;
  waitpid(child, &status, 0);
  differences<<<256, 256>>>(static_cast<unsigned*>(data), bytes / 4, 7u, found);
  unsigned wrong;
  CUDA(cudaMemcpy(&wrong, found, sizeof wrong, cudaMemcpyDeviceToHost));
  std::printf("what the second wrote is %s; copies from it, bytes read and written: %.0f GB/s\n",
              wrong ? "WRONG" : "right", rate);
  return wrong != 0;
}
