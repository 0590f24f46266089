#include "device/kernels/codecs.hpp"
#include "device/kernels/fold.hpp"
#include "device/kernels/reduce_families.hpp"

namespace mpigdr::kernels::MPIGDR_ISA {

void reduce_floats(const Args& args) {
  switch (args.dtype) {
    case DataType::Float64:
      return fold_real<PlainCodec<double>>(args);
    case DataType::Float32:
      return fold_real<PlainCodec<float>>(args);
    case DataType::Float16:
      return fold_real<Float16Codec>(args);
    case DataType::BFloat16:
      return fold_real<BFloat16Codec>(args);
    default:
      unexpected(args.dtype);
  }
}

}  // namespace mpigdr::kernels::MPIGDR_ISA
