#include "device/kernels/codecs.hpp"
#include "device/kernels/fold.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

void reduce_floats(const Args& args) {
  fold_typed(args, {{DataType::Float64, fold_real<PlainCodec<double>>},
                    {DataType::Float32, fold_real<PlainCodec<float>>},
                    {DataType::Float16, fold_real<Float16Codec>},
                    {DataType::BFloat16, fold_real<BFloat16Codec>}});
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
