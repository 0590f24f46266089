// The loop of the kernels on a GPU (MPI_GDR_FOLD of kernels/portable.hpp): a launch, and in it the threads of
// kernels/fold_elements.hpp. Only kernels/fold.hpp includes this.
#pragma once

#include "device/cuda/gpu_api.hpp"
#include "device/cuda/launch.hpp"
#include "device/kernels/resolved_fold.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

using Args = LaunchArgs;

template <typename Codec, typename Op, bool kScaled, int kCapacity>
__global__ void __launch_bounds__(gpu::kThreads, gpu::kBlocksPerMultiprocessor)
    fold_kernel(const GPU_GRID_CONSTANT FoldArgs<kCapacity> args) {
  fold_elements<Codec, Op, kScaled>(args, std::uint64_t{blockIdx.x} * gpu::kThreads + threadIdx.x,
                                    std::uint64_t{gridDim.x} * gpu::kThreads);
}

template <typename Codec, typename Op, bool kScaled, int kCapacity>
struct FoldKernel {
  static const void* address() { return GPU_KERNEL(fold_kernel<Codec, Op, kScaled, kCapacity>); }
  static inline const bool entered = gpu::enter_kernel(address());
  static void launch(FoldArgs<kCapacity> parameters, const Args& args) {
    static_cast<void>(entered);  // named, so that it exists
    gpu::launch(address(), useful_threads<Codec>(parameters), &parameters, args);
  }
};

template <typename Codec, typename Op, bool kScaled>
__global__ void __launch_bounds__(gpu::kThreads, gpu::kBlocksPerMultiprocessor)
    fold_resolved_kernel(const GPU_GRID_CONSTANT ResolvedFoldArgs args) {
  __shared__ ResolvedFold resolved;
  if (threadIdx.x == 0) resolve_fold<Codec>(args, resolved);
  __syncthreads();
  fold_elements<Codec, Op, kScaled>(resolved, std::uint64_t{blockIdx.x} * gpu::kThreads + threadIdx.x,
                                    std::uint64_t{gridDim.x} * gpu::kThreads);
}

template <typename Codec, typename Op, bool kScaled>
struct FoldResolvedKernel {
  static const void* address() { return GPU_KERNEL(fold_resolved_kernel<Codec, Op, kScaled>); }
  static inline const bool entered = gpu::enter_kernel(address());
  static void launch(const Args& args) {
    static_cast<void>(entered);
    ResolvedFoldArgs parameters = resolved_fold_args<Codec>(args, *args.resolved);
    gpu::launch(address(), useful_threads<Codec>(parameters), &parameters, args);
  }
};

template <typename Codec, typename Op, bool kScaled>
void fold(const Args& args) {
  if (args.resolved) {
    if (args.count != 0) FoldResolvedKernel<Codec, Op, kScaled>::launch(args);
    return;
  }
  with_fold_args<Codec>(args, [&]<int kCapacity>(const FoldArgs<kCapacity>& parameters) {
    if (args.count != 0) FoldKernel<Codec, Op, kScaled, kCapacity>::launch(parameters, args);
  });
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
