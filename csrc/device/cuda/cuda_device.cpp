#include "device/cuda/cuda_device.hpp"

#include <new>

#include "common/error.hpp"
#include "device/cuda/cuda_queue.hpp"
#include "device/cuda/launch.hpp"

namespace mpi_gdr {

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

void CudaDevice::enter_thread() { driver_.enter_thread(); }

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
