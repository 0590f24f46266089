#include "device/cuda/cuda_device.hpp"

#include <new>

#include "common/error.hpp"
#include "device/cuda/flag_kernels.hpp"
#include "device/cuda/launch.hpp"
#include "device/resolved.hpp"

namespace mpi_gdr {
namespace {

constexpr kernels::Families<LaunchArgs> kKernels = {
    kernels::cuda::reduce_floats, kernels::cuda::reduce_float8, kernels::cuda::reduce_complex,
    kernels::cuda::reduce_integers};

}  // namespace

// The device must outlive it. Errors and threads: cuda_device.hpp.
class CudaQueue : public DeviceQueue {
 public:
  // `owned`: the destructor destroys the stream, which does not wait for its work.
  CudaQueue(CudaDevice& device, gpu::Stream stream, bool owned)
      : device_(device), stream_(stream), owned_(owned) {}
  ~CudaQueue() override {
    if (!owned_) return;
    try {
      const gpu::DeviceGuard guard(device_.driver_);
      static_cast<void>(GPU(StreamDestroy)(stream_));
    } catch (const std::exception&) {  // the process ends, and the driver has ended already
    }
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  // Use the driver's stream memory operations. Use a kernel if the driver has none, and for replays: a graph
  // records the operations with constant values.
  void wait_flag(const Flag* flag, std::uint64_t at_least, const Replays& replays) override {
    const gpu::DeviceGuard guard(device_.driver_);
    if (device_.driver_.stream_flags() && !replays.count)
      device_.driver_.wait_flag(stream_, flag, at_least);
    else
      gpu::launch_wait(device_.index_, stream_, flag, at_least, replays);
  }
  void write_flag(Flag* flag, std::uint64_t value, const Replays& replays) override {
    const gpu::DeviceGuard guard(device_.driver_);
    if (device_.driver_.stream_flags() && !replays.count)
      device_.driver_.write_flag(stream_, flag, value);
    else
      gpu::launch_write(device_.index_, stream_, flag, value, replays);
  }
  void count_replay(const Replays& replays) override {
    const gpu::DeviceGuard guard(device_.driver_);
    gpu::launch_count_replay(device_.index_, stream_, replays);
  }
  void copy(void* dst, const void* src, std::size_t bytes) override {
    if (bytes == 0) return;
    const gpu::DeviceGuard guard(device_.driver_);
    GPU_CALL(device_.index_, MemcpyAsync, dst, src, bytes, GPU(MemcpyDefault), stream_);
  }
  // Throws InvalidUsage for more than 480 sources, and for addresses that are not aligned to the element type
  // (complex: to its component type).
  void reduce(const ReduceArgs& args) override { reduce(args, nullptr); }
  void reduce(const ResolvedReduce& args) override { reduce(args.reduce, &args); }
  void resolve(const ResolveArgs& args) override {
    const gpu::DeviceGuard guard(device_.driver_);
    gpu::launch_resolve(device_.index_, stream_, args);
  }
  void synchronize() override {
    const gpu::DeviceGuard guard(device_.driver_);
    GPU_CALL(device_.index_, StreamSynchronize, stream_);
  }
  void* native() override { return stream_; }

  gpu::Stream stream() const { return stream_; }

 private:
  void reduce(const ReduceArgs& args, const ResolvedReduce* resolved) {
    const gpu::DeviceGuard guard(device_.driver_);
    kernels::reduce_with(kKernels, LaunchArgs{args, stream_, device_.index_, device_.most_blocks_, resolved});
  }

  CudaDevice& device_;
  const gpu::Stream stream_;
  const bool owned_;
};

CudaDevice::CudaDevice(int index) : driver_(index), index_(index) {
  const gpu::DeviceGuard guard(driver_);
  int multiprocessors = 1, least = 0;
  GPU_CALL(index_, DeviceGetAttribute, &multiprocessors, gpu::kMultiprocessors, index_);
  most_blocks_ = static_cast<unsigned>(multiprocessors) * gpu::kBlocksPerMultiprocessor;
  GPU_CALL(index_, DeviceGetStreamPriorityRange, &least, &priority_);
  GPU_CALL(index_, EventCreateWithFlags, &event_, GPU(EventDisableTiming));
  gpu::load_kernels(index_);
}

std::unique_ptr<DeviceQueue> CudaDevice::make_queue() {
  const gpu::DeviceGuard guard(driver_);
  gpu::Stream stream = nullptr;
  GPU_CALL(index_, StreamCreateWithPriority, &stream, GPU(StreamNonBlocking), priority_);
  return std::make_unique<CudaQueue>(*this, stream, true);
}

std::unique_ptr<DeviceQueue> CudaDevice::adopt(void* native) {
  return std::make_unique<CudaQueue>(*this, static_cast<gpu::Stream>(native), false);
}

bool CudaDevice::capturing(void* native) {
  const gpu::DeviceGuard guard(driver_);
  GPU(StreamCaptureStatus) status = GPU(StreamCaptureStatusNone);
  GPU_CALL(index_, StreamIsCapturing, static_cast<gpu::Stream>(native), &status);
  return status != GPU(StreamCaptureStatusNone);
}

std::string CudaDevice::identity() const {
  gpu::Properties properties;
  GPU_CALL(index_, GetDeviceProperties, &properties, index_);
  return std::string(properties.uuid.bytes, sizeof properties.uuid.bytes);
}

void* CudaDevice::allocate(std::size_t bytes) {
  const gpu::DeviceGuard guard(driver_);
  void* memory = nullptr;
  const auto status = GPU(Malloc)(&memory, bytes ? bytes : 1);
  if (status == GPU(ErrorMemoryAllocation)) {
    static_cast<void>(GPU(GetLastError)());
    throw NoMemory("no memory for " + std::to_string(bytes) + " bytes on device " + std::to_string(index_) +
                   ": " + gpu::text(status));
  }
  gpu::check(status, GPU_TEXT(Malloc), index_);
  return memory;
}

void CudaDevice::release(void* memory) {
  const gpu::DeviceGuard guard(driver_);
  GPU_CALL(index_, Free, memory);
}

void CudaDevice::synchronize() {
  const gpu::DeviceGuard guard(driver_);
  GPU_CALL(index_, DeviceSynchronize);
}

std::shared_ptr<Flag[]> CudaDevice::make_flags(std::size_t count) {
  static_assert(sizeof(Flag) == sizeof(std::uint64_t) && Flag::is_always_lock_free);
  const gpu::DeviceGuard guard(driver_);
  const std::size_t bytes = (count ? count : 1) * sizeof(Flag);
  void* memory = nullptr;
  const auto status = GPU(HostAlloc)(&memory, bytes, GPU(HostAllocMapped) | GPU(HostAllocPortable));
  if (status == GPU(ErrorMemoryAllocation)) {
    static_cast<void>(GPU(GetLastError)());
    throw NoMemory(bytes, "pinned flags: " + gpu::text(status));
  }
  gpu::check(status, GPU_TEXT(HostAlloc), index_);
  Flag* const flags = static_cast<Flag*>(memory);
  for (std::size_t i = 0; i < count; ++i) new (flags + i) Flag(0);
  std::shared_ptr<Flag[]> owner(flags, [this](Flag* block) {
    try {
      const gpu::DeviceGuard freeing(driver_);
      static_cast<void>(GPU(FreeHost)(block));
    } catch (const std::exception&) {  // the process ends, and the driver has ended already
    }
  });
  expect_same_address(memory);
  return owner;
}

void CudaDevice::expect_same_address(void* memory) const {
  void* seen = nullptr;
  GPU_CALL(index_, HostGetDevicePointer, &seen, memory, 0);
  if (seen != memory)
    fail(ErrorCode::System, "device ", index_, " does not see host memory where the host does");
}

void CudaDevice::order(DeviceQueue& before, DeviceQueue& after) {
  const gpu::Stream first = static_cast<CudaQueue&>(before).stream();
  const gpu::Stream second = static_cast<CudaQueue&>(after).stream();
  if (first == second) return;
  const gpu::DeviceGuard guard(driver_);
  // A wait refers to the latest record at the time of the call: one event serves all.
  std::lock_guard lock(order_);
  GPU_CALL(index_, EventRecord, event_, first);
  GPU_CALL(index_, StreamWaitEvent, second, event_, 0);
}

}  // namespace mpi_gdr
