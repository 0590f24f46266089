// The checks of host::reduce, and the choice of the family of kernels.
#include "common/error.hpp"
#include "device/device.hpp"
#include "device/host/reduce_families.hpp"

namespace mpigdr::host {
namespace {

void check(const ReduceArgs& args) {
  if (args.source_count < 1)
    fail(ErrorCode::InvalidUsage, "source_count=", args.source_count,
         ": a reduction needs at least one source");
  if (!supports(args.op, args.dtype))
    fail(ErrorCode::InvalidUsage, "op=", name(args.op), " is not defined on dtype=", name(args.dtype));
  if (args.divisor == 0) fail(ErrorCode::InvalidUsage, "divisor=0: expected the number of ranks, at least 1");
  if (args.divisor != 1 && args.dtype == DataType::Bool)
    fail(ErrorCode::InvalidUsage, "divisor=", args.divisor, " on bool: a bool cannot be divided, expected 1");
  if (args.factor != 1.0 && is_integral(args.dtype))
    fail(ErrorCode::InvalidUsage, "factor=", args.factor, " on dtype=", name(args.dtype),
         ": only floating and complex types can be multiplied by a factor");
  const bool sum = args.op == ReduceOp::Sum || args.op == ReduceOp::Avg || args.op == ReduceOp::PreMulSum;
  if (!sum && (args.factor != 1.0 || args.divisor != 1))
    fail(ErrorCode::InvalidUsage, "factor=", args.factor, " and divisor=", args.divisor,
         " with op=", name(args.op), ": only sums are scaled, expected 1 and 1");
}

}  // namespace

void reduce(const ReduceArgs& args) {
  check(args);
  switch (args.dtype) {
    case DataType::Float64:
    case DataType::Float32:
    case DataType::Float16:
    case DataType::BFloat16:
      return reduce_floats(args);
    case DataType::Float8E4M3FN:
    case DataType::Float8E5M2:
    case DataType::Float8E4M3FNUZ:
    case DataType::Float8E5M2FNUZ:
    case DataType::Float8E8M0FNU:
      return reduce_float8(args);
    case DataType::Complex32:
    case DataType::Complex64:
    case DataType::Complex128:
      return reduce_complex(args);
    case DataType::Int64:
    case DataType::Int32:
    case DataType::Int16:
    case DataType::Int8:
    case DataType::UInt64:
    case DataType::UInt32:
    case DataType::UInt16:
    case DataType::UInt8:
    case DataType::Bool:
      return reduce_integers(args);
  }
}

}  // namespace mpigdr::host
