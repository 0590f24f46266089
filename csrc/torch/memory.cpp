#include "torch/memory.hpp"

#include <ATen/EmptyTensor.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "common/env.hpp"
#include "common/error.hpp"

namespace mpigdr::torch_binding {
namespace {

constexpr std::uint64_t kMostByDefault = std::uint64_t{64} << 30;

// Each rank maps the memory of all ranks of its node, used or not: addresses must not be what runs out.
std::uint64_t default_limit() {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return 0;
  // Where the system counts pages before they are touched, touching too many would be a signal, not an error.
  int overcommit = 0;
  if (std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit; overcommit == 2) return 0;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  return std::min(kMostByDefault, static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) / 4);
}

std::uint64_t group_memory_limit() {
  const Env& env = Env::get();
  if (!env.node_memory) return 0;
  return env.group_memory ? *env.group_memory : default_limit();
}

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

}  // namespace

shm::Arena* group_arena() {
  static const std::uint64_t limit = group_memory_limit();
  return shm::Arena::own(limit);
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

}  // namespace mpigdr::torch_binding
