// Functions that CUDA does not have, for torch's accelerator (simgpu/), NCCL (nccl/) and unit tests. They
// launch host functions as kernels, add and remove devices, inject errors, and shut down. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "gpu/kernel.hpp"

namespace fakecuda {

// Launches `work` as a kernel that is already loaded. `work` must not throw or call CUDA. A graph runs copies
// of `work`.
__attribute__((visibility("default"))) cudaError_t launch(cudaStream_t stream, std::function<void()> work);
// As launch(), of work that may wait: what `launched` returns is called until it returns Ended, and does not
// block. `launched` is called at this launch or at each of the graph, in the order of the launches.
__attribute__((visibility("default"))) cudaError_t
launch_steps(cudaStream_t stream, std::function<std::function<Launch::State()>()> launched);
// As launch(), but not a CUDA call: a call that waits for the device does not block slip_in(), and
// refuse_after() and inject_failure() do not apply.
__attribute__((visibility("default"))) void slip_in(cudaStream_t stream, std::function<void()> work);

struct DeviceSettings {
  std::uint64_t queues = 1, delay_us = 0, seed = 1;  // as in Settings
};
// Adds a device and returns its index.
__attribute__((visibility("default"))) int add_device(const DeviceSettings& settings);
// Waits for the device's work, frees the device's memory except pinned memory, and closes the memory handles
// that the device opened. The device must not be used again.
__attribute__((visibility("default"))) void remove_device(int device);

// Lets `calls` more calls put work on streams of the device. The next such call returns cudaErrorUnknown and
// does nothing; later calls succeed. A negative `calls` cancels the error.
__attribute__((visibility("default"))) void refuse_after(int device, int calls);

// Every later call of the API function named `function` returns cudaErrorUnknown and does nothing. Null ends
// this. The string must stay valid.
__attribute__((visibility("default"))) void inject_failure(const char* function);

// Number of this process's kernels that have begun and not ended. Counted only if processes take turns on the
// device (turns.hpp).
__attribute__((visibility("default"))) int kernels_under_way(int device);

// Call before the process exits. Waits up to `patience` for all submitted work to end. After that no item
// begins, and wind_up() waits for the executing items.
__attribute__((visibility("default"))) void wind_up(std::chrono::milliseconds patience);

}  // namespace fakecuda
