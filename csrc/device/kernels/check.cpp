// Validates arguments before any kernel runs, equally on every device.
#include "common/error.hpp"
#include "device/kernels/reduce_families.hpp"

namespace mpi_gdr::kernels {

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
  if (args.exact && args.source_count > kMostExactSources)
    fail(ErrorCode::InvalidUsage, "source_count=", args.source_count, ": an exact sum takes at most ",
         kMostExactSources, " contributions");
  if (args.exact && args.factor != 1.0)
    fail(ErrorCode::InvalidUsage, "factor=", args.factor, " with an exact sum: expected 1");
  const bool sum = args.op == ReduceOp::Sum || args.op == ReduceOp::Avg || args.op == ReduceOp::PreMulSum;
  if (!sum && (args.factor != 1.0 || args.divisor != 1))
    fail(ErrorCode::InvalidUsage, "factor=", args.factor, " and divisor=", args.divisor,
         " with op=", name(args.op), ": only sums are scaled, expected 1 and 1");
}

void fail_dtype(DataType dtype) { fail(ErrorCode::Internal, name(dtype), " among another family's types"); }

}  // namespace mpi_gdr::kernels
