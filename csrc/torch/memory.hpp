// Memory for tensors that a group communicates: allocateTensor() and getMemAllocator() of c10d.
//
// Today page-aligned host memory of the process: for CPU tensors only. It belongs to the tensor, so that it
// outlives the group. This is the seam where memory that peers can map will come from.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <memory>

namespace mpigdr::torch_binding {

// One for the whole process. Thread-safe; throws torch's OutOfMemoryError.
std::shared_ptr<c10::Allocator> group_allocator();

// One-dimensional, uninitialised. Throws InvalidUsage for a negative size or another device than the CPU.
at::Tensor allocate_tensor(std::int64_t size, const at::TensorOptions& options);

}  // namespace mpigdr::torch_binding
