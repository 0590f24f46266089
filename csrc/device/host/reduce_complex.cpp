#include "device/host/codecs.hpp"
#include "device/host/fold.hpp"
#include "device/host/reduce_families.hpp"

namespace mpigdr::host::MPIGDR_ISA {

void reduce_complex(const ReduceArgs& args) {
  switch (args.dtype) {
    case DataType::Complex32:
      return fold<ComplexCodec<Float16Codec>, ComplexMultiply, false>(args);
    case DataType::Complex64:
      return fold<ComplexCodec<FloatCodec<float>>, ComplexMultiply, false>(args);
    case DataType::Complex128:
      return fold<ComplexCodec<FloatCodec<double>>, ComplexMultiply, false>(args);
    default:
      unexpected(args.dtype);
  }
}

}  // namespace mpigdr::host::MPIGDR_ISA
