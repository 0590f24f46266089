// Group memory, which other ranks of the node map: c10d's allocateTensor() and getMemAllocator().
//
// Above its limit: on the host (transport/shm/arena.hpp) page-aligned ordinary memory, on a served device
// (transport/ipc/device_arena.hpp) an error. Owned by the tensor: it may outlive the group.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <memory>

namespace mpi_gdr::torch_binding {

// Host memory, one per process. Thread-safe; throws torch's OutOfMemoryError.
std::shared_ptr<c10::Allocator> group_allocator();

// Whether allocate_tensor() serves this accelerator; loads its library. False if MPI_GDR_IPC=off or limit 0.
bool has_device_memory(c10::DeviceIndex index);

// Uninitialised, one dimension. No index: the current device. May wait for it. Throws InvalidUsage for a
// negative size or a device without a library, and torch's OutOfMemoryError.
at::Tensor allocate_tensor(std::int64_t size, const at::TensorOptions& options);

}  // namespace mpi_gdr::torch_binding
