#include "device/kernels/float8.hpp"
#include "device/kernels/fold.hpp"
#include "device/kernels/reduce_families.hpp"

namespace mpigdr::kernels::MPIGDR_ISA {

void reduce_float8(const Args& args) {
  switch (args.dtype) {
    case DataType::Float8E4M3FN:
      return fold_real<Float8E4M3FNCodec>(args);
    case DataType::Float8E5M2:
      return fold_real<Float8E5M2Codec>(args);
    case DataType::Float8E4M3FNUZ:
      return fold_real<Float8E4M3FNUZCodec>(args);
    case DataType::Float8E5M2FNUZ:
      return fold_real<Float8E5M2FNUZCodec>(args);
    case DataType::Float8E8M0FNU:
      return fold_real<Float8E8M0FNUCodec>(args);
    default:
      unexpected(args.dtype);
  }
}

}  // namespace mpigdr::kernels::MPIGDR_ISA
