// Launches kernels, and lists all of them.
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
  unsigned most_blocks = 1;                  // that the device runs concurrently
  const ResolvedReduce* resolved = nullptr;  // contains this reduction; null: ReduceArgs is all
};

namespace kernels {
MPI_GDR_FAMILIES(cuda, LaunchArgs)
}

namespace gpu {

// These fill a multiprocessor, with 64 registers for each thread. Further blocks would only wait.
inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kBlocksPerMultiprocessor = 4;

// Lists a kernel. For static initialisers, so that the list is complete before the first launch.
bool enter_kernel(const void* kernel);
// Loads all kernels onto the current device. Loading may synchronise the device: at a kernel's first launch,
// it could wait for work that waits for a flag.
void load_kernels(int device);

// Starts blocks for this many threads (at least 1), at most most_blocks: the kernel strides over the rest.
// `parameters`: the kernel's only argument.
void launch(const void* kernel, std::uint64_t threads, void* parameters, const LaunchArgs& args);

}  // namespace gpu
}  // namespace mpi_gdr
