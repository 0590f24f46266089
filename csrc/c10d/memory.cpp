#include "c10d/memory.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "c10d/device_streams.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "execution/device/gate.hpp"
#include "job/group_memory.hpp"
#include "transport/ipc/device_arena.hpp"

namespace mpi_gdr::torch_binding {
namespace {

void release(void* memory) {
  if (shm::Arena* const arena = shm::Arena::find(memory))
    arena->free(memory);
  else
    std::free(memory);
}

class GroupAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    shm::Arena* const arena = group_arena();
    void* memory = arena ? arena->allocate(bytes) : nullptr;
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (!memory && posix_memalign(&memory, page, bytes) != 0)
      C10_THROW_ERROR(OutOfMemoryError, c10::str("mpi-gdr: no memory for a tensor of ", bytes, " bytes"));
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

void release_on_device(void* memory) {  // any thread, even if the runtime blocks
  if (ipc::DeviceArena* const arena = ipc::DeviceArena::find(memory)) arena->free(memory);
}

class DeviceGroupAllocator final : public c10::Allocator {
 public:
  DeviceGroupAllocator(c10::Device where, Device& device) : where_(where), device_(device) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release_on_device, where_};
    try {
      const c10::impl::VirtualGuardImpl guard(where_.type());
      void* const memory = ipc::DeviceArena::of(device_).allocate(
          bytes, guard.getStreamNativeHandle(guard.getStream(where_)), !Gate::any_holds_a_stream());
      return {memory, memory, &release_on_device, where_};
    } catch (const NoMemory& error) {
      C10_THROW_ERROR(OutOfMemoryError, c10::str("mpi-gdr: ", where_.str(), ": ", error.what()));
    }
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_on_device; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const c10::impl::VirtualGuardImpl guard(where_.type());
    device_.adopt(guard.getStreamNativeHandle(guard.getStream(where_)))->copy(to, from, bytes);
  }

 private:
  const c10::Device where_;
  Device& device_;
};

c10::Allocator* device_group_allocator(c10::Device where) {  // leaked, as the host's
  static std::mutex mutex;
  static auto& made = *new std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Allocator*>;
  const std::lock_guard lock(mutex);
  c10::Allocator*& known = made[{where.type(), where.index()}];
  if (!known) known = new DeviceGroupAllocator(where, device_library(where.type())->device(where.index()));
  return known;
}

}  // namespace

std::shared_ptr<c10::Allocator> group_allocator() {
  // Leaked: storages keep plain pointers to it.
  static const std::shared_ptr<c10::Allocator>* const allocator =
      new std::shared_ptr<c10::Allocator>(std::make_shared<GroupAllocator>());
  return *allocator;
}

bool has_device_memory(c10::DeviceIndex index) {
  const Env& env = Env::get();
  if (!env.device_sharing || env.device_group_memory == std::uint64_t{0}) return false;
  const std::optional<c10::DeviceType> type = at::getAccelerator();
  return type && serves_device(c10::Device(*type, index));
}

at::Tensor allocate_tensor(std::int64_t size, const at::TensorOptions& options) {
  if (size < 0) fail(ErrorCode::InvalidUsage, "allocate_tensor: size=", size, ", expected none below 0");
  c10::Allocator* allocator = nullptr;
  if (options.device().is_cpu()) {
    allocator = group_allocator().get();
  } else if (options.device().type() == at::getAccelerator() && serves_device(options.device())) {
    // torch opens the device and resolves its index.
    allocator = device_group_allocator(at::empty({0}, options).device());
  } else {
    fail(ErrorCode::InvalidUsage, "no group memory on device=", options.device().str(),
         ", expected cpu or a device that mpi-gdr serves; `mpi-gdr info` lists these");
  }
  return at::detail::empty_generic({size}, allocator, c10::DispatchKeySet(options.computeDispatchKey()),
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

}  // namespace mpi_gdr::torch_binding
