// Kernels: registration by nvcc's objects before main(), loading, launching.
//
// Modules are loaded lazily, and loading may wait for the device: a launch of a kernel that is not loaded
// could wait for work that waits for a flag, so it is a fault. CUDA_MODULE_LOADING=EAGER counts all as
// loaded.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudart/api.hpp"
#include "cudart/call_site.hpp"
#include "cudart/capture.hpp"
#include "cudart/handles.hpp"
#include "cudart/settings.hpp"
#include "gpu/fault.hpp"
#include "gpu/kernel.hpp"

using namespace fakecuda;

namespace {

struct Registered {
  std::string name;
  const Kernel* kernel = nullptr;  // null: not looked up yet
};

// By host function. Filled by static initialisers, later guarded by the machine's mutex.
std::map<const void*, Registered>& registered() {
  static auto& leaked = *new std::map<const void*, Registered>;
  return leaked;
}

// Null: the function is not a kernel.
const Kernel* find(const void* function) {
  const auto found = registered().find(function);
  if (found == registered().end()) return nullptr;
  Registered& it = found->second;
  if (!it.kernel) it.kernel = find_kernel(it.name);
  if (!it.kernel) fault(("no PTX for kernel " + it.name).c_str());
  return it.kernel;
}

bool eager() {
  static const char* const mode = std::getenv("CUDA_MODULE_LOADING");
  return mode && std::strcmp(mode, "EAGER") == 0;
}

Step launch_step(const Kernel& kernel, unsigned blocks, unsigned threads, std::vector<std::byte> params,
                 Gpu& gpu) {
  static std::atomic<std::uint64_t> launches{0};
  const std::uint64_t seed = Settings::get().seed + launches.fetch_add(1);
  std::shared_ptr<Launch> launch;  // of this run
  return [=, &kernel, &gpu]() mutable {
    gpu.turns.begin(!launch);
    if (!launch) launch = std::make_shared<Launch>(kernel, blocks, threads, params, gpu.room, seed);
    const Progress progress = launch->step();
    gpu.turns.end(progress == Progress::Ended);
    if (progress == Progress::Ended) launch = nullptr;
    return progress;
  };
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};

// The launch configurations (<<<...>>>) of the calling thread.
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> stack;
  return stack;
}

}  // namespace

FAKECUDA_API void** __cudaRegisterFatBinary(void* binary) { return new void*(binary); }
FAKECUDA_API void __cudaRegisterFatBinaryEnd(void**) {}
FAKECUDA_API void __cudaUnregisterFatBinary(void** handle) { delete handle; }
FAKECUDA_API char __cudaInitModule(void**) { return 1; }

FAKECUDA_API void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                                         uint3*, dim3*, dim3*, int*) {
  registered()[function].name = name;
}

bool fakecuda::enter_host_kernel(const void* function, const Kernel& kernel) {
  registered()[function] = {std::string(kernel.name), new Kernel(kernel)};
  return true;
}

FAKECUDA_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                                  cudaStream_t stream) {
  configurations().push_back({grid, block, shared, stream});
  return 0;
}

FAKECUDA_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                                    void* stream) {
  if (configurations().empty()) fault("a kernel's stub called without <<< >>>");
  const Configuration it = configurations().back();
  configurations().pop_back();
  *grid = it.grid;
  *block = it.block;
  *shared = it.shared;
  *static_cast<cudaStream_t*>(stream) = it.stream;
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const Kernel* const kernel = find(function);
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  Gpu& gpu = current_gpu();
  if (gpu.loaded.insert(function).second && Settings::get().waits) wait_shutting_out(lock, gpu);
  *attributes = {};
  attributes->numRegs = static_cast<int>(kernel->registers);
  attributes->maxThreadsPerBlock = static_cast<int>(kernel->most_threads);
  attributes->sharedSizeBytes = kernel->shared_bytes;
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                          std::size_t shared, cudaStream_t handle) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const Kernel* const kernel = find(function);
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  if (grid.y * grid.z * block.y * block.z != 1 || shared != 0)
    fault("not modelled: a launch of several dimensions, or with dynamic shared memory");
  if (grid.x == 0 || block.x == 0 || block.x > kernel->most_threads)
    return report(cudaErrorInvalidConfiguration);
  const StreamPtr stream = use_stream(handle, "cudaLaunchKernel");
  Gpu& gpu = stream->gpu;
  if (!eager() && !gpu.loaded.contains(function))
    fault(("launch of a kernel that is not loaded: " + std::string(kernel->name)).c_str());
  if (launch_left_out(kernel->name)) return cudaSuccess;
  std::vector<std::byte> params(kernel->param_bytes);
  for (std::size_t i = 0; i < kernel->params.size(); ++i)
    std::memcpy(params.data() + kernel->params[i].at, arguments[i], kernel->params[i].bytes);
  submit(lock, stream, launch_step(*kernel, grid.x, block.x, std::move(params), gpu));
  return cudaSuccess;
}

// A kernel's handle is its host function.
FAKECUDA_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

FAKECUDA_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                            std::size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
