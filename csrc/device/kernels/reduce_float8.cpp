#include "device/kernels/float8.hpp"
#include "device/kernels/fold.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

void reduce_float8(const Args& args) {
  fold_typed(args, {{DataType::Float8E4M3FN, fold_real<Float8E4M3FNCodec>},
                    {DataType::Float8E5M2, fold_real<Float8E5M2Codec>},
                    {DataType::Float8E4M3FNUZ, fold_real<Float8E4M3FNUZCodec>},
                    {DataType::Float8E5M2FNUZ, fold_real<Float8E5M2FNUZCodec>},
                    {DataType::Float8E8M0FNU, fold_real<Float8E8M0FNUCodec>}});
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
