// The checks of host::reduce, and the choice of the kernels.
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

// A sum of complex numbers, scaled by real ones, is that of their parts.
ReduceArgs parts_of(ReduceArgs args) {
  args.count *= 2;
  args.dtype = args.dtype == DataType::Complex32   ? DataType::Float16
               : args.dtype == DataType::Complex64 ? DataType::Float32
                                                   : DataType::Float64;
  return args;
}

// By what the processor has.
struct Kernels {
  void (*floats)(const ReduceArgs&);
  void (*float8)(const ReduceArgs&);
  void (*complex)(const ReduceArgs&);
  void (*integers)(const ReduceArgs&);
};
constexpr Kernels kKernels[] = {
    {baseline::reduce_floats, baseline::reduce_float8, baseline::reduce_complex, baseline::reduce_integers},
#ifdef MPIGDR_X86_KERNELS
    {avx2::reduce_floats, avx2::reduce_float8, avx2::reduce_complex, avx2::reduce_integers},
    // GCC 12 makes fused operations of complex products where it may use AVX-512, also if told not to.
    {avx512::reduce_floats, avx512::reduce_float8, avx2::reduce_complex, avx512::reduce_integers},
    {avx512_bf16::reduce_floats, avx512::reduce_float8, avx2::reduce_complex, avx512::reduce_integers},
#endif
};

}  // namespace

void unexpected(DataType dtype) { fail(ErrorCode::Internal, name(dtype), " among another family's types"); }

void reduce(const ReduceArgs& args) {
  static const Isa isa = selected_isa();
  reduce(args, isa);
}

void reduce(const ReduceArgs& args, Isa isa) {
  check(args);
  const Kernels& kernels = kKernels[static_cast<int>(isa)];
  switch (args.dtype) {
    case DataType::Float64:
    case DataType::Float32:
    case DataType::Float16:
    case DataType::BFloat16:
      return kernels.floats(args);
    case DataType::Float8E4M3FN:
    case DataType::Float8E5M2:
    case DataType::Float8E4M3FNUZ:
    case DataType::Float8E5M2FNUZ:
    case DataType::Float8E8M0FNU:
      return kernels.float8(args);
    case DataType::Complex32:
    case DataType::Complex64:
    case DataType::Complex128:
      return args.op == ReduceOp::Product ? kernels.complex(args) : kernels.floats(parts_of(args));
    case DataType::Int64:
    case DataType::Int32:
    case DataType::Int16:
    case DataType::Int8:
    case DataType::UInt64:
    case DataType::UInt32:
    case DataType::UInt16:
    case DataType::UInt8:
    case DataType::Bool:
      return kernels.integers(args);
  }
}

}  // namespace mpigdr::host
