// Device tensors as CPU tensors over the same memory, for the CPU kernels that do the device's work.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

#include "runtime.hpp"

namespace simgpu {

// The aliases of one call: tensors of one storage share one, as the checks of the kernels for overlap want.
//
// An alias owns no memory. That of the device lives by the rules of its allocator, in the order of streams.
class Aliases {
 public:
  at::Tensor of(const at::Tensor& device);
  // A result of a kernel that ran on aliases, as a tensor of the device: one that was passed, a view of one,
  // or new memory, filled in the order of `stream`.
  at::Tensor device_result(const at::Tensor& result, c10::Stream stream);
  // Kernels may have given their outputs another shape, and memory of their own if it did not fit.
  void adopt_shapes(c10::Stream stream);

 private:
  struct Pair {
    at::Tensor device, alias;
    const void* memory;
  };
  std::vector<Pair> pairs_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;  // of the device -> of the alias
};

inline at::Tensor alias(const at::Tensor& device) { return Aliases().of(device); }

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                           c10::DeviceIndex device);
// `source` is kept until the device has copied it.
at::Tensor copied_to_device(const at::Tensor& source, c10::Stream stream);

// Keeps the values of as many elements as fit.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

// Runs `work`, which calls kernels of the CPU, in the order of the stream.
void enqueue(c10::Stream stream, std::function<void()> work);

}  // namespace simgpu
