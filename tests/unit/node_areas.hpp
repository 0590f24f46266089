// Memory that the ranks of a node share for their devices, here all in one process: each rank has mapped it
// at addresses of its own, as shm::NodeMemory does.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "common/error.hpp"
#include "common/memory_file.hpp"
#include "transport/ipc/device_node.hpp"

namespace unit {

// By rank.
inline std::vector<mpi_gdr::ipc::Areas> make_areas(int size) {
  const std::size_t bytes = mpi_gdr::ipc::DeviceNode::bytes(size);
  std::vector<mpi_gdr::ipc::Areas> ranks(static_cast<std::size_t>(size));
  for (int owner = 0; owner < size; ++owner) {
    const mpi_gdr::MemoryFile made = mpi_gdr::make_memory_file(bytes);
    for (mpi_gdr::ipc::Areas& areas : ranks) {
      void* const memory = mpi_gdr::map_file_of(::getpid(), made.file, bytes);
      if (!memory) mpi_gdr::fail(mpi_gdr::ErrorCode::System, "no memory for the devices of ranks");
      areas.of.push_back(static_cast<std::byte*>(memory));
      areas.owner = std::shared_ptr<const void>(
          memory, [bytes, before = areas.owner](void* area) { ::munmap(area, bytes); });
    }
    mpi_gdr::release(made, bytes);
  }
  return ranks;
}

}  // namespace unit
