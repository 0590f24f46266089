// Launching kernels, and the list of all there are.
#pragma once

#include <cstdint>

#include "device/cuda/gpu_api.hpp"
#include "device/device.hpp"
#include "device/kernels/reduce_families.hpp"
#include "device/resolved.hpp"

namespace mpi_gdr {

// A reduction and where it runs.
struct LaunchArgs : ReduceArgs {
  gpu::Stream stream = nullptr;
  int device = 0;
  unsigned most_blocks = 1;                  // those that run at once
  const ResolvedReduce* resolved = nullptr;  // of which this is the reduction; null: of none
};

namespace kernels {
MPI_GDR_FAMILIES(cuda, LaunchArgs)
}

namespace gpu {

// These fill a multiprocessor, with 64 registers for each thread. More would only wait for these to end.
inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kBlocksPerMultiprocessor = 4;

// For static initialisers: each kernel of the library is on the list before anything is launched.
bool enter_kernel(const void* kernel);
// Loads all of them onto the current device, which may wait for it. A kernel that is loaded by its first
// launch may wait for work that waits for a flag.
void load_kernels(int device);

// With enough blocks for so many threads (at least 1), most_blocks at most: the kernel covers the rest in
// strides. `parameters`: the kernel's only argument.
void launch(const void* kernel, std::uint64_t threads, void* parameters, const LaunchArgs& args);

}  // namespace gpu
}  // namespace mpi_gdr
