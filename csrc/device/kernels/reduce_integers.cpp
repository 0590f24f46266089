#include "device/kernels/codecs.hpp"
#include "device/kernels/fold.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {
namespace {

// Operations in which the sign matters.
template <typename T>
void fold_integer(const Args& args) {
  if (args.op == ReduceOp::Min) return fold<PlainCodec<T>, Minimum, false>(args);
  if (args.op == ReduceOp::Max) return fold<PlainCodec<T>, Maximum, false>(args);
  fold<PlainCodec<T>, Add, true>(args);
}

// The others: results wrap modulo 2^n.
template <typename T>
void fold_bits(const Args& args) {
  if (args.op == ReduceOp::Product) return fold<PlainCodec<T>, Multiply, false>(args);
  if (args.op == ReduceOp::BitAnd) return fold<PlainCodec<T>, And, false>(args);
  if (args.op == ReduceOp::BitOr) return fold<PlainCodec<T>, Or, false>(args);
  if (args.op == ReduceOp::BitXor) return fold<PlainCodec<T>, Xor, false>(args);
  fold<PlainCodec<T>, Add, false>(args);
}

void fold_bool(const Args& args) {
  if (args.op == ReduceOp::Sum || args.op == ReduceOp::Max || args.op == ReduceOp::BitOr)
    return fold<BoolCodec, Or, false>(args);
  if (args.op == ReduceOp::BitXor) return fold<BoolCodec, Xor, false>(args);
  fold<BoolCodec, And, false>(args);
}

void fold_signed(const Args& args) {
  fold_typed(args, {{DataType::Int64, fold_integer<std::int64_t>},
                    {DataType::Int32, fold_integer<std::int32_t>},
                    {DataType::Int16, fold_integer<std::int16_t>},
                    {DataType::Int8, fold_integer<std::int8_t>},
                    {DataType::UInt64, fold_integer<std::uint64_t>},
                    {DataType::UInt32, fold_integer<std::uint32_t>},
                    {DataType::UInt16, fold_integer<std::uint16_t>},
                    {DataType::UInt8, fold_integer<std::uint8_t>}});
}

}  // namespace

void reduce_integers(const Args& args) {
  if (args.dtype == DataType::Bool) return fold_bool(args);
  if (args.divisor != 1 || args.op == ReduceOp::Min || args.op == ReduceOp::Max) return fold_signed(args);
  const std::size_t item = item_size(args.dtype);
  if (item == 8) return fold_bits<std::uint64_t>(args);
  if (item == 4) return fold_bits<std::uint32_t>(args);
  if (item == 2) return fold_bits<std::uint16_t>(args);
  fold_bits<std::uint8_t>(args);
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
