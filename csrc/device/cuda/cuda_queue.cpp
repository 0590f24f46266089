#include "device/cuda/cuda_queue.hpp"

#include "device/cuda/flag_kernels.hpp"
#include "device/cuda/launch.hpp"
#include "device/resolved.hpp"

namespace mpi_gdr {
namespace {

constexpr kernels::Families<LaunchArgs> kKernels = {
    kernels::cuda::reduce_floats, kernels::cuda::reduce_float8, kernels::cuda::reduce_complex,
    kernels::cuda::reduce_integers};

}  // namespace

CudaQueue::~CudaQueue() {
  if (!owned_) return;
  try {
    const gpu::DeviceGuard guard(device_.driver_);
    static_cast<void>(GPU(StreamDestroy)(stream_));
  } catch (const std::exception&) {  // the process ends, and the driver has ended already
  }
}

void CudaQueue::wait_flag(const Flag* flag, std::uint64_t at_least, const Replays& replays) {
  const gpu::DeviceGuard guard(device_.driver_);
  if (device_.driver_.stream_flags() && !replays.count)
    device_.driver_.wait_flag(stream_, flag, at_least);
  else
    gpu::launch_wait(device_.index_, stream_, flag, at_least, replays);
}

void CudaQueue::write_flag(Flag* flag, std::uint64_t value, const Replays& replays) {
  const gpu::DeviceGuard guard(device_.driver_);
  if (device_.driver_.stream_flags() && !replays.count)
    device_.driver_.write_flag(stream_, flag, value);
  else
    gpu::launch_write(device_.index_, stream_, flag, value, replays);
}

void CudaQueue::count_replay(const Replays& replays) {
  const gpu::DeviceGuard guard(device_.driver_);
  gpu::launch_count_replay(device_.index_, stream_, replays);
}

void CudaQueue::copy(void* dst, const void* src, std::size_t bytes) {
  if (bytes == 0) return;
  const gpu::DeviceGuard guard(device_.driver_);
  GPU_CALL(device_.index_, MemcpyAsync, dst, src, bytes, GPU(MemcpyDefault), stream_);
}

void CudaQueue::reduce(const ReduceArgs& args) {
  const gpu::DeviceGuard guard(device_.driver_);
  kernels::reduce_with(kKernels, LaunchArgs{args, stream_, device_.index_, device_.most_blocks_});
}

void CudaQueue::resolve(const ResolveArgs& args) {
  const gpu::DeviceGuard guard(device_.driver_);
  gpu::launch_resolve(device_.index_, stream_, args);
}

void CudaQueue::reduce(const ResolvedReduce& args) {
  const gpu::DeviceGuard guard(device_.driver_);
  kernels::reduce_with(kKernels,
                       LaunchArgs{args.reduce, stream_, device_.index_, device_.most_blocks_, &args});
}

void CudaQueue::synchronize() {
  const gpu::DeviceGuard guard(device_.driver_);
  GPU_CALL(device_.index_, StreamSynchronize, stream_);
}

}  // namespace mpi_gdr
