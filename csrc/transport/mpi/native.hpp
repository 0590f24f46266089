// The library's collectives that mean exactly what ours do, and their calls; also for transport/mpi/raw.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "transport/transport.hpp"

namespace mpi_gdr::mpi {

// The null handle where MPI has no equivalent, and for complex types, whose product may differ.
[[gnu::visibility("default")]] MPI_Datatype mpi_datatype(DataType t);
// The null handle where MPI has none. Bool: logical operations.
[[gnu::visibility("default")]] MPI_Op mpi_operation(ReduceOp op, DataType t);

// MPI counts are 32-bit here: larger ones are left to our schedules, which cut messages.
bool native_is_exact(Collective collective, DataType dtype, ReduceOp op, std::uint64_t count);

// `result`: where the library writes; equal to c.input (in place), or no overlap with it.
MPI_Request start_native(const NativeCollective& c, void* result, int rank, MPI_Comm comm);

}  // namespace mpi_gdr::mpi
