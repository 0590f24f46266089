// What CUDA does not offer, for the accelerator that torch sees (simgpu/) and for unit tests: kernels
// that are functions of the host, devices that come and go, and one that is told to refuse or to stop.
//
// Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace fakecuda {

// A kernel that is loaded, whatever it is. It throws nothing and calls nothing of CUDA; a graph runs copies.
__attribute__((visibility("default"))) cudaError_t launch(cudaStream_t stream, std::function<void()> work);
// The same of what is no call of CUDA: nobody who waits for the device holds it up, and it is not refused.
__attribute__((visibility("default"))) void slip_in(cudaStream_t stream, std::function<void()> work);

struct DeviceSettings {
  std::uint64_t queues = 1, delay_us = 0, seed = 1;  // as Settings
};
// One more device; its index.
__attribute__((visibility("default"))) int add_device(const DeviceSettings& settings);
// Waits for its work, and takes back its memory and what it has opened. Pinned memory stays. It is used no
// more.
__attribute__((visibility("default"))) void remove_device(int device);

// So many more calls put work on a stream of the device, whichever it is, then one returns cudaErrorUnknown
// and does nothing, and those behind it are as before; < 0: none does.
__attribute__((visibility("default"))) void refuse_after(int device, int calls);

// Each call of this function returns cudaErrorUnknown and does nothing, from now on; null: none does. The
// name is a constant of the program.
__attribute__((visibility("default"))) void let_fail(const char* function);

// Kernels of this process that are under way on a device where processes take turns.
__attribute__((visibility("default"))) int kernels_under_way(int device);

// Before the process ends: gives the work so much time, then nothing that has not begun will, and what runs
// has ended.
__attribute__((visibility("default"))) void wind_up(std::chrono::milliseconds patience);

}  // namespace fakecuda
