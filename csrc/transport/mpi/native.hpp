// Starts the MPI library's collectives where their semantics equal ours. transport/mpi/raw shares the types.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "transport/transport.hpp"

namespace mpi_gdr::mpi {

// Returns the null handle if MPI has no equivalent, and for complex types, whose product may differ.
[[gnu::visibility("default")]] MPI_Datatype mpi_datatype(DataType t);
// Returns the null handle if MPI has no equivalent. Bool: logical operations.
[[gnu::visibility("default")]] MPI_Op mpi_operation(ReduceOp op, DataType t);

// Whether semantics equal ours. False for counts beyond MPI's int: our schedules split their messages.
bool native_is_exact(Collective collective, DataType dtype, ReduceOp op, std::uint64_t count);

// `result`: where the library writes; equal to c.input (in place), or no overlap with it.
MPI_Request start_native(const NativeCollective& c, void* result, int rank, MPI_Comm comm);

}  // namespace mpi_gdr::mpi
