#include "device/host/isa.hpp"

#include <algorithm>

#ifdef MPIGDR_X86_KERNELS
#include <cpuid.h>
#endif

#include "common/env.hpp"
#include "common/error.hpp"

namespace mpigdr::host {
namespace {

#ifdef MPIGDR_X86_KERNELS
// Which not every compiler's __builtin_cpu_supports knows by name.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

}  // namespace

std::string_view name(Isa isa) {
  constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  return kNames[static_cast<int>(isa)];
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> available = [] {
    std::vector<Isa> isas = {Isa::Baseline};
#ifdef MPIGDR_X86_KERNELS
    // These ask the operating system, too, whether it keeps the registers.
    if (__builtin_cpu_supports("avx2") && has_f16c()) isas.push_back(Isa::Avx2);
    if (has_f16c() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      isas.push_back(Isa::Avx512);
      if (__builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::Avx512Bf16);
    }
#endif
    return isas;
  }();
  return available;
}

Isa selected_isa() {
  static const Isa selected = [] {
    const std::vector<Isa>& available = available_isas();
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

}  // namespace mpigdr::host
