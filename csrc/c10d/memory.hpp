// Memory for tensors that a group communicates: allocateTensor() and getMemAllocator() of c10d.
//
// Group memory, which the other ranks of the node map. On the host (transport/shm/arena.hpp): page-aligned
// ordinary memory once its limit is reached. On a device that a library of ours serves
// (transport/ipc/device_arena.hpp): an error then. It belongs to the tensor, so that it outlives the group.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <memory>

namespace mpi_gdr::torch_binding {

// Of the host's memory, one for the whole process. Thread-safe; throws torch's OutOfMemoryError.
std::shared_ptr<c10::Allocator> group_allocator();

// Whether allocate_tensor() serves this device of torch's accelerator. Loads the library for it. False where
// devices share no memory (MPI_GDR_IPC): there is no use in it.
bool has_device_memory(c10::DeviceIndex index);

// One-dimensional, uninitialised. A device without an index is the current one. May wait for the device.
// Throws InvalidUsage for a negative size or a device that nothing serves, torch's OutOfMemoryError.
at::Tensor allocate_tensor(std::int64_t size, const at::TensorOptions& options);

}  // namespace mpi_gdr::torch_binding
