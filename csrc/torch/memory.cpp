#include "torch/memory.hpp"

#include <ATen/EmptyTensor.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/error.hpp"

namespace mpigdr::torch_binding {
namespace {

class PageAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &std::free, c10::Device(c10::kCPU)};
    void* memory = nullptr;
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (posix_memalign(&memory, page, bytes) != 0)
      C10_THROW_ERROR(OutOfMemoryError, c10::str("mpi-gdr: no memory for a tensor of ", bytes, " bytes"));
    return {memory, memory, &std::free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

std::shared_ptr<c10::Allocator> group_allocator() {
  // Leaked: storages keep a plain pointer to it, for resizing.
  static const std::shared_ptr<c10::Allocator>* const allocator =
      new std::shared_ptr<c10::Allocator>(std::make_shared<PageAllocator>());
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
