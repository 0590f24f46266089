#include "common/float_mode.hpp"
#include "device/device.hpp"
#include "device/host/isa.hpp"
#include "device/kernels/reduce_families.hpp"

namespace mpi_gdr {
namespace kernels {
MPI_GDR_FAMILIES(baseline, ReduceArgs)
MPI_GDR_FAMILIES(avx2, ReduceArgs)
MPI_GDR_FAMILIES(avx512, ReduceArgs)
MPI_GDR_FAMILIES(avx512_bf16, ReduceArgs)
}  // namespace kernels

namespace host {
namespace {

using namespace kernels;
constexpr Families<ReduceArgs> kKernels[] = {
    {baseline::reduce_floats, baseline::reduce_float8, baseline::reduce_complex, baseline::reduce_integers},
#ifdef MPI_GDR_X86_KERNELS
    {avx2::reduce_floats, avx2::reduce_float8, avx2::reduce_complex, avx2::reduce_integers},
    // GCC 12 fuses operations of complex products for AVX-512, even with the option against it.
    {avx512::reduce_floats, avx512::reduce_float8, avx2::reduce_complex, avx512::reduce_integers},
    {avx512_bf16::reduce_floats, avx512::reduce_float8, avx2::reduce_complex, avx512::reduce_integers},
#endif
};

}  // namespace

void reduce(const ReduceArgs& args) {
  static const Isa isa = selected_isa();
  reduce(args, isa);
}

void reduce(const ReduceArgs& args, Isa isa) {
  const StandardFloatMode mode;
  reduce_with(kKernels[static_cast<int>(isa)], args);
}

}  // namespace host
}  // namespace mpi_gdr
