#include "device/kernels/codecs.hpp"
#include "device/kernels/fold.hpp"
#include "device/kernels/reduce_families.hpp"

namespace mpigdr::kernels::MPIGDR_ISA {

void reduce_complex(const Args& args) {
  switch (args.dtype) {
    case DataType::Complex32:
      return fold<ComplexCodec<Float16Codec>, ComplexMultiply, false>(args);
    case DataType::Complex64:
      return fold<ComplexCodec<PlainCodec<float>>, ComplexMultiply, false>(args);
    case DataType::Complex128:
      return fold<ComplexCodec<PlainCodec<double>>, ComplexMultiply, false>(args);
    default:
      unexpected(args.dtype);
  }
}

}  // namespace mpigdr::kernels::MPIGDR_ISA
