// Beyond CUDA's API, for the accelerator that torch sees (simgpu/) and for unit tests: kernels that are host
// functions, devices that come and go, and injected refusals and shutdown. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace fakecuda {

// A loaded kernel. `work` must not throw or call CUDA; a graph runs copies of it.
__attribute__((visibility("default"))) cudaError_t launch(cudaStream_t stream, std::function<void()> work);
// The same, but not as a CUDA call: it ignores waits that shut others out, and is never refused.
__attribute__((visibility("default"))) void slip_in(cudaStream_t stream, std::function<void()> work);

struct DeviceSettings {
  std::uint64_t queues = 1, delay_us = 0, seed = 1;  // as Settings
};
// Adds a device and returns its index.
__attribute__((visibility("default"))) int add_device(const DeviceSettings& settings);
// Waits for the device's work and releases its memory and what it has opened, except pinned memory. The
// device must not be used again.
__attribute__((visibility("default"))) void remove_device(int device);

// After `calls` more calls that put work on streams of the device, one returns cudaErrorUnknown and does
// nothing; < 0: none.
__attribute__((visibility("default"))) void refuse_after(int device, int calls);

// Every later call of this function returns cudaErrorUnknown and does nothing; null: none. `function` must
// stay valid.
__attribute__((visibility("default"))) void inject_failure(const char* function);

// This process's unfinished kernels on a device where processes take turns.
__attribute__((visibility("default"))) int kernels_under_way(int device);

// Before the process exits: waits up to `patience` for the work, then starts no more and waits for what runs.
__attribute__((visibility("default"))) void wind_up(std::chrono::milliseconds patience);

}  // namespace fakecuda
