// The instruction sets that the kernels are compiled for. One is chosen once per process, by the processor;
// results are equal bit for bit, except the payload of a NaN that is made of two.
#pragma once

#include <span>

#include "device/device.hpp"

namespace mpi_gdr {
namespace host {

enum class Isa {
  Baseline,  // what the compiler assumes: SSE2 on x86-64, NEON on AArch64
  Avx2,      // and F16C
  Avx512,    // F, BW, DQ, VL, and F16C
  Avx512Bf16,
};

// Compiled and supported by this processor, the widest last.
std::span<const Isa> available_isas();
// The widest, or that of MPI_GDR_SIMD. Throws Error(InvalidUsage) if that is not available.
Isa selected_isa();
// As host::reduce, with the kernels of this instruction set. Available ones only.
void reduce(const ReduceArgs& args, Isa isa);

}  // namespace host

template <>
inline constexpr auto kNames<host::Isa> = names("baseline", "avx2", "avx512", "avx512_bf16");

}  // namespace mpi_gdr
