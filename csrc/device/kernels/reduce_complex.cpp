#include "device/kernels/codecs.hpp"
#include "device/kernels/fold.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

void reduce_complex(const Args& args) {
  fold_typed(args, {{DataType::Complex32, fold<ComplexCodec<Float16Codec>, ComplexMultiply, false>},
                    {DataType::Complex64, fold<ComplexCodec<PlainCodec<float>>, ComplexMultiply, false>},
                    {DataType::Complex128, fold<ComplexCodec<PlainCodec<double>>, ComplexMultiply, false>}});
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
