#include "device/host/isa.hpp"

#include <algorithm>
#include <array>

#ifdef MPI_GDR_X86_KERNELS
#include <cpuid.h>
#endif

#include "common/env.hpp"
#include "common/error.hpp"

namespace mpi_gdr::host {
namespace {

#ifdef MPI_GDR_X86_KERNELS
// Not every compiler's __builtin_cpu_supports has this name.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

}  // namespace

std::span<const Isa> available_isas() {
  // Allocates nothing: the first reduction calls it.
  struct List {
    std::array<Isa, 4> isas{Isa::Baseline};
    std::size_t count = 1;
    void add(Isa isa) { isas[count++] = isa; }
  };
  static const List available = [] {
    List list;
#ifdef MPI_GDR_X86_KERNELS
    // These also check that the operating system keeps the registers.
    if (__builtin_cpu_supports("avx2") && has_f16c()) list.add(Isa::Avx2);
    if (has_f16c() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      list.add(Isa::Avx512);
      if (__builtin_cpu_supports("avx512bf16")) list.add(Isa::Avx512Bf16);
    }
#endif
    return list;
  }();
  return {available.isas.data(), available.count};
}

Isa selected_isa() {
  static const Isa selected = [] {
    const std::span<const Isa> available = available_isas();
    const std::string& wanted = Env::get().simd;
    if (wanted == "auto") return available.back();
    const auto found =
        std::find_if(available.begin(), available.end(), [&](Isa isa) { return name(isa) == wanted; });
    if (found == available.end())
      fail(ErrorCode::InvalidUsage, "MPI_GDR_SIMD=", wanted,
           ": this processor or this build has none of these kernels, expected auto, baseline or what "
           "`mpi-gdr info` lists");
    return *found;
  }();
  return selected;
}

}  // namespace mpi_gdr::host
