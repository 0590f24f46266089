// Chooses the kernel for host::reduce. CMakeLists.txt compiles this file with -O3 and -ffp-contract=off:
// fused multiply-adds would make the bits depend on the machine.
#include "common/error.hpp"
#include "device/host/reduce_kernels.hpp"

namespace mpigdr::host {
namespace {

template <typename Codec, typename Op>
void choose_scaling(const ReduceArgs& args) {
  if (args.factor == 1.0 && args.divisor == 1)
    fold<Codec, Op, false>(args);
  else
    fold<Codec, Op, true>(args);
}

template <typename Codec>
void choose_operation(const ReduceArgs& args) {
  switch (args.op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
    case ReduceOp::PreMulSum:
      return choose_scaling<Codec, Add>(args);
    case ReduceOp::Product:
      return choose_scaling<Codec, Multiply>(args);
    case ReduceOp::Min:
      return choose_scaling<Codec, Minimum>(args);
    case ReduceOp::Max:
      return choose_scaling<Codec, Maximum>(args);
  }
}

void choose_logical(const ReduceArgs& args) {
  if (args.divisor != 1)
    fail(ErrorCode::InvalidUsage, "divisor=", args.divisor, " on bool: a bool cannot be divided, expected 1");
  const bool any = args.op == ReduceOp::Sum || args.op == ReduceOp::Max;
  if (any)
    fold<BoolCodec, Or, false>(args);
  else
    fold<BoolCodec, And, false>(args);
}

}  // namespace

void reduce(const ReduceArgs& args) {
  if (args.source_count < 1)
    fail(ErrorCode::InvalidUsage, "source_count=", args.source_count,
         ": a reduction needs at least one source");
  if (!supports(args.op, args.dtype))
    fail(ErrorCode::InvalidUsage, "op=", name(args.op), " is not defined on dtype=", name(args.dtype));
  if (args.divisor == 0) fail(ErrorCode::InvalidUsage, "divisor=0: expected the number of ranks, at least 1");
  if (args.factor != 1.0 && !is_floating(args.dtype))
    fail(ErrorCode::InvalidUsage, "factor=", args.factor, " on dtype=", name(args.dtype),
         ": only floating types can be multiplied by a factor");
  switch (args.dtype) {
    case DataType::Float64:
      return choose_operation<FloatCodec<double>>(args);
    case DataType::Float32:
      return choose_operation<FloatCodec<float>>(args);
    case DataType::Float16:
      return choose_operation<Float16Codec>(args);
    case DataType::BFloat16:
      return choose_operation<BFloat16Codec>(args);
    case DataType::Int64:
      return choose_operation<IntegerCodec<std::int64_t>>(args);
    case DataType::Int32:
      return choose_operation<IntegerCodec<std::int32_t>>(args);
    case DataType::Int16:
      return choose_operation<IntegerCodec<std::int16_t>>(args);
    case DataType::Int8:
      return choose_operation<IntegerCodec<std::int8_t>>(args);
    case DataType::UInt8:
      return choose_operation<IntegerCodec<std::uint8_t>>(args);
    case DataType::Bool:
      return choose_logical(args);
  }
}

}  // namespace mpigdr::host
