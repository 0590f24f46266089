#include "transport/mpi/native.hpp"

#include <climits>
#include <cstddef>

#include "common/error.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {

MPI_Datatype mpi_datatype(DataType t) {
  if (t == DataType::Float64) return MPI_DOUBLE;
  if (t == DataType::Float32) return MPI_FLOAT;
  if (!is_integral(t)) return MPI_DATATYPE_NULL;
  // In the order of DataType, from Int64 to Bool, which has the logical operations below.
  const MPI_Datatype integers[] = {MPI_INT64_T,  MPI_INT32_T,  MPI_INT16_T, MPI_INT8_T, MPI_UINT64_T,
                                   MPI_UINT32_T, MPI_UINT16_T, MPI_UINT8_T, MPI_UINT8_T};
  return integers[static_cast<int>(t) - static_cast<int>(DataType::Int64)];
}

MPI_Op mpi_operation(ReduceOp op, DataType t) {
  const MPI_Op numeric[kReduceOpCount] = {MPI_SUM, MPI_OP_NULL, MPI_OP_NULL, MPI_PROD, MPI_MIN,
                                          MPI_MAX, MPI_BAND,    MPI_BOR,     MPI_BXOR},
               logical[kReduceOpCount] = {MPI_LOR, MPI_OP_NULL, MPI_OP_NULL, MPI_LAND, MPI_LAND,
                                          MPI_LOR, MPI_LAND,    MPI_LOR,     MPI_LXOR};
  return (t == DataType::Bool ? logical : numeric)[static_cast<int>(op)];
}

namespace {

// Open MPI 5.0.11 saturates most elements of a sum of 8- or 16-bit integers (its vector code) and wraps the
// rest; MPICH 4.0.2 compares unsigned integers as signed ones.
bool libraries_agree(ReduceOp op, DataType t) {
  const bool is_unsigned =
      t == DataType::UInt64 || t == DataType::UInt32 || t == DataType::UInt16 || t == DataType::UInt8;
  if (op == ReduceOp::Sum) return t == DataType::Bool || item_size(t) >= 4;
  return !(is_unsigned && (op == ReduceOp::Min || op == ReduceOp::Max));
}

}  // namespace

bool native_is_exact(Collective collective, DataType dtype, ReduceOp op, std::uint64_t count) {
  if (collective == Collective::Barrier) return true;
  if (collective == Collective::AllToAll) return false;  // its counts differ per rank
  if (reduces(collective))
    return count <= INT_MAX && supports(op, dtype) && mpi_datatype(dtype) != MPI_DATATYPE_NULL &&
           mpi_operation(op, dtype) != MPI_OP_NULL && libraries_agree(op, dtype);
  return count <= INT_MAX / item_size(dtype);  // as bytes
}

MPI_Request start_native(const NativeCollective& c, void* result, int rank, MPI_Comm comm) {
  if (!native_is_exact(c.collective, c.dtype, c.op, c.count))
    fail(ErrorCode::InvalidUsage, "no native ", name(c.collective), " for ", c.count, " elements of ",
         name(c.dtype), " with ", name(c.op));
  MPI_Request request = MPI_REQUEST_NULL;
  const bool typed = reduces(c.collective), root = rank == c.root;
  const std::size_t bytes = c.count * item_size(c.dtype);
  const int count = static_cast<int>(typed ? c.count : bytes);
  const MPI_Datatype type = typed ? mpi_datatype(c.dtype) : MPI_BYTE;
  const MPI_Op op = typed ? mpi_operation(c.op, c.dtype) : MPI_OP_NULL;
  const void* input = c.input == result ? MPI_IN_PLACE : c.input;
  const auto own_block = [&](const void* all) {
    return static_cast<const char*>(all) + static_cast<std::size_t>(rank) * bytes;
  };
  const auto started = [&request](int code, const char* operation) {
    check(code, operation);
    return request;
  };
  switch (c.collective) {
    case Collective::Barrier:
      return started(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
    case Collective::Broadcast:
      return started(MPI_Ibcast(result, count, type, c.root, comm, &request), "MPI_Ibcast");
    case Collective::AllReduce:
      return started(MPI_Iallreduce(input, result, count, type, op, comm, &request), "MPI_Iallreduce");
    case Collective::Reduce:
      // In place is for the root only; other ranks' result is unused.
      return started(MPI_Ireduce(root ? input : c.input, root ? result : nullptr, count, type, op, c.root,
                                 comm, &request),
                     "MPI_Ireduce");
    case Collective::AllGather:
      return started(MPI_Iallgather(c.input == own_block(result) ? MPI_IN_PLACE : c.input, count, type,
                                    result, count, type, comm, &request),
                     "MPI_Iallgather");
    case Collective::ReduceScatter:
      return started(MPI_Ireduce_scatter_block(c.input, result, count, type, op, comm, &request),
                     "MPI_Ireduce_scatter_block");
    case Collective::Gather:
      return started(MPI_Igather(root && c.input == own_block(result) ? MPI_IN_PLACE : c.input, count, type,
                                 root ? result : nullptr, count, type, c.root, comm, &request),
                     "MPI_Igather");
    case Collective::Scatter:
      return started(MPI_Iscatter(root ? c.input : nullptr, count, type,
                                  root && result == own_block(c.input) ? MPI_IN_PLACE : result, count, type,
                                  c.root, comm, &request),
                     "MPI_Iscatter");
    default:
      fail(ErrorCode::Internal, "native ", name(c.collective), " was refused above");
  }
}

}  // namespace mpi_gdr::mpi
