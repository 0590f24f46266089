#include "torch/memory.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/EmptyTensor.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "common/env.hpp"
#include "common/error.hpp"

namespace mpigdr::torch_binding {
namespace {

constexpr const char* kDdpVariable = "DDP_DISABLE_COMM_MEM";
std::atomic<const void*> ddp_owner{nullptr};  // the group for which we have set it

std::uint64_t group_memory_limit() {
  const Env& env = Env::get();
  if (!env.node_memory) return 0;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const auto quarter =
      pages > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) / 4 : 0;
  return env.group_memory.value_or(quarter);
}

void release(void* memory) {
  shm::Arena* const arena = group_arena();
  if (arena && arena->owns(memory))
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

}  // namespace

shm::Arena* group_arena() {
  static shm::Arena* const arena = shm::Arena::own(group_memory_limit());
  return arena;
}

std::shared_ptr<c10::Allocator> group_allocator() {
  // Leaked: storages keep a plain pointer to it, for resizing.
  static const std::shared_ptr<c10::Allocator>* const allocator =
      new std::shared_ptr<c10::Allocator>(std::make_shared<GroupAllocator>());
  return *allocator;
}

at::Tensor allocate_tensor(std::int64_t size, const at::TensorOptions& options) {
  if (size < 0) fail(ErrorCode::InvalidUsage, "allocate_tensor: size=", size, ", expected none below 0");
  if (!options.device().is_cpu())
    fail(ErrorCode::InvalidUsage, "allocate_tensor: device=", options.device().str(),
         ", expected cpu: ask supports_tensor_alloc(device) first");
  return at::detail::empty_generic({size}, group_allocator().get(),
                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

void offer_ddp_buckets(const void* owner) {
  if (!group_arena() || at::getAccelerator().has_value() || std::getenv(kDdpVariable)) return;
  ::setenv(kDdpVariable, "0", 0);
  ddp_owner.store(owner, std::memory_order_relaxed);
}

void withdraw_ddp_buckets(const void* owner) {
  if (ddp_owner.compare_exchange_strong(owner, nullptr, std::memory_order_relaxed)) ::unsetenv(kDdpVariable);
}

}  // namespace mpigdr::torch_binding
