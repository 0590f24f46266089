// Memory for tensors that a group communicates: allocateTensor() and getMemAllocator() of c10d.
//
// Group memory (transport/shm/arena.hpp), which the other ranks of the node map; page-aligned ordinary memory
// once its limit is reached. For CPU tensors only. It belongs to the tensor, so that it outlives the group.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <memory>

#include "transport/shm/arena.hpp"

namespace mpigdr::torch_binding {

// Group memory of this process, null: there is none. Thread-safe.
shm::Arena* group_arena();

// One for the whole process. Thread-safe; throws torch's OutOfMemoryError.
std::shared_ptr<c10::Allocator> group_allocator();

// One-dimensional, uninitialised. Throws InvalidUsage for a negative size or another device than the CPU.
at::Tensor allocate_tensor(std::int64_t size, const at::TensorOptions& options);

}  // namespace mpigdr::torch_binding
