// Private to transport/mpi: error codes of MPI calls become mpigdr::Error.
#pragma once

#include <mpi.h>

#include <string>

namespace mpigdr::mpi {

// "rank 1: MPI_Isend failed: Invalid tag". A failure also marks the runtime as failed: MPI_Finalize is then
// skipped.
[[noreturn]] void raise(int code, const std::string& operation);

inline void check(int code, const char* operation) {
  if (code != MPI_SUCCESS) [[unlikely]]
    raise(code, operation);
}

// The reordered duplicate of MPI_COMM_WORLD: its rank is torch's rank. Throws unless initialize() has
// succeeded.
MPI_Comm base_communicator();

}  // namespace mpigdr::mpi
