// Device tensors as CPU tensors over the same memory, for the CPU kernels that execute the device's work.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

#include "runtime.hpp"

namespace simgpu {

// The aliases of one call. Tensors of one storage share an alias storage, as the kernels' overlap checks
// require. Aliases own no memory: its lifetime follows the device allocator, in stream order.
class Aliases {
 public:
  at::Tensor of(const at::Tensor& device);
  // The device tensor for a result of a kernel on aliases: an argument, a view of one, or new memory, filled
  // in the order of `stream`.
  at::Tensor device_result(const at::Tensor& result, c10::Stream stream);
  // Takes over shapes that kernels gave their outputs, and the memory of outputs that had to grow.
  void adopt_shapes(c10::Stream stream);

 private:
  struct Pair {
    at::Tensor device, alias;
    const void* memory;
  };
  std::vector<Pair> pairs_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;  // device's -> alias's
};

inline at::Tensor alias(const at::Tensor& device) { return Aliases().of(device); }

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                           c10::DeviceIndex device);
// Keeps `source` until the device has copied it.
at::Tensor copied_to_device(const at::Tensor& source, c10::Stream stream);

// Keeps the values that fit.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

// Runs `work`, which calls CPU kernels, in stream order.
void enqueue(c10::Stream stream, std::function<void()> work);

}  // namespace simgpu
