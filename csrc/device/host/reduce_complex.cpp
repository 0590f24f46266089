#include "common/error.hpp"
#include "device/host/codecs.hpp"
#include "device/host/fold.hpp"
#include "device/host/reduce_families.hpp"

namespace mpigdr::host {

void reduce_complex(const ReduceArgs& args) {
  if (args.op != ReduceOp::Product) {  // sums, scaled by real numbers, are those of the parts
    ReduceArgs parts = args;
    parts.count = 2 * args.count;
    parts.dtype = args.dtype == DataType::Complex32   ? DataType::Float16
                  : args.dtype == DataType::Complex64 ? DataType::Float32
                                                      : DataType::Float64;
    return reduce_floats(parts);
  }
  switch (args.dtype) {
    case DataType::Complex32:
      return fold<ComplexCodec<Float16Codec>, ComplexMultiply, false>(args);
    case DataType::Complex64:
      return fold<ComplexCodec<FloatCodec<float>>, ComplexMultiply, false>(args);
    case DataType::Complex128:
      return fold<ComplexCodec<FloatCodec<double>>, ComplexMultiply, false>(args);
    default:
      fail(ErrorCode::Internal, name(args.dtype), " among the complex types");
  }
}

}  // namespace mpigdr::host
