#pragma once

#include "transport/shm/arena.hpp"

namespace mpi_gdr {

// Host memory of this process that its node's other ranks map, at most MPI_GDR_GROUP_MEMORY bytes; created by
// the first call. Null: none. Thread-safe.
shm::Arena* group_arena();

}  // namespace mpi_gdr
