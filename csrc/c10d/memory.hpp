// Group memory, which other ranks of the node map: c10d's allocateTensor() and getMemAllocator().
//
// At its limit, host memory (transport/shm/arena.hpp) falls back to page-aligned ordinary memory; device
// memory (transport/ipc/device_arena.hpp) throws. A tensor owns its memory, which may outlive the group.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <memory>

namespace mpi_gdr::torch_binding {

// The process's allocator of host memory. Thread-safe; throws torch's OutOfMemoryError.
std::shared_ptr<c10::Allocator> group_allocator();

// Whether allocate_tensor() serves this accelerator; loads its library. False if MPI_GDR_IPC=off or limit 0.
bool has_device_memory(c10::DeviceIndex index);

// Returns an uninitialised tensor of one dimension; a device without index is the current one. May wait for
// the device. Throws InvalidUsage for size < 0 or a device without library, and torch's OutOfMemoryError.
at::Tensor allocate_tensor(std::int64_t size, const at::TensorOptions& options);

}  // namespace mpi_gdr::torch_binding
