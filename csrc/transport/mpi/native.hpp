// Which of the library's collectives mean exactly what ours do, and their calls; also for transport/mpi/raw.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "transport/transport.hpp"

namespace mpi_gdr::mpi {

// The null handle where MPI has no type of the same meaning (short floats round differently or are missing),
// and for complex types, whose product an MPI may compute by another formula.
[[gnu::visibility("default")]] MPI_Datatype mpi_datatype(DataType t);
// The null handle where MPI has none; Bool is reduced by the logical operations.
[[gnu::visibility("default")]] MPI_Op mpi_operation(ReduceOp op, DataType t);

// MPI counts are 32-bit here: larger ones are refused and left to our schedules, which cut messages.
bool native_is_exact(Collective collective, DataType dtype, ReduceOp op, std::uint64_t count);

// `result`: where the library writes; equal to c.input (in place), or no overlap with it.
MPI_Request start_native(const NativeCollective& c, void* result, int rank, MPI_Comm comm);

}  // namespace mpi_gdr::mpi
