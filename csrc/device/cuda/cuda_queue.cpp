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
  } catch (const std::exception&) {  // the process ends, and the driver has ended before
  }
}

template <typename Word>
void CudaQueue::wait(const Word* word, Word at_least) {
  const gpu::DeviceGuard guard(device_.driver_);
  if (device_.driver_.stream_words())
    device_.driver_.wait_word(stream_, word, at_least);
  else
    gpu::launch_wait(device_.index_, stream_, word, at_least);
}

template <typename Word>
void CudaQueue::write(Word* word, Word value) {
  const gpu::DeviceGuard guard(device_.driver_);
  if (device_.driver_.stream_words())
    device_.driver_.write_word(stream_, word, value);
  else
    gpu::launch_write(device_.index_, stream_, word, value);
}

void CudaQueue::wait_flag(const Flag* flag, std::uint32_t at_least) {
  wait<std::uint32_t>(device_.word(flag), at_least);
}
void CudaQueue::write_flag(Flag* flag, std::uint32_t value) { write(device_.word(flag), value); }
void CudaQueue::wait_flag64(const Flag64* flag, std::uint64_t at_least) {
  wait(reinterpret_cast<const std::uint64_t*>(flag), at_least);
}
void CudaQueue::write_flag64(Flag64* flag, std::uint64_t value) {
  write(reinterpret_cast<std::uint64_t*>(flag), value);
}

void CudaQueue::count_replay(const Replays& replays) {
  const gpu::DeviceGuard guard(device_.driver_);
  gpu::launch_count_replay(device_.index_, stream_, replays);
}

void CudaQueue::wait_replay(const Flag64* flag, const Replays& replays, std::uint32_t ago,
                            std::uint32_t number) {
  const gpu::DeviceGuard guard(device_.driver_);
  gpu::launch_wait_replay(device_.index_, stream_, flag, replays, ago, number);
}

void CudaQueue::write_replay(Flag64* flag, const Replays& replays, std::uint32_t number) {
  const gpu::DeviceGuard guard(device_.driver_);
  gpu::launch_write_replay(device_.index_, stream_, flag, replays, number);
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
