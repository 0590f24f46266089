// The host memory of this process that the other ranks of its node map: tensors that groups communicate.
#pragma once

#include "transport/shm/arena.hpp"

namespace mpi_gdr {

// Made at the first call, of MPI_GDR_GROUP_MEMORY bytes at most. Null: there is none. Thread-safe.
shm::Arena* group_arena();

}  // namespace mpi_gdr
