#include "gpu/kernel.hpp"

namespace fakecuda {
namespace {

std::vector<Kernel>& registry() {
  static auto* const kernels = new std::vector<Kernel>;  // leaked: kernels may still run at exit
  return *kernels;
}

// Mangled names with internal linkage have two hashes around the file's name:
// "_GLOBAL__N__d8ade778_15_flag_kernels_cu_f0f86f7a". Their length never changes.
bool same_but_for_hashes(std::string_view a, std::string_view b) {
  constexpr std::string_view kBefore = "_GLOBAL__N__";
  constexpr std::size_t kHash = 8;
  const std::size_t at = a.find(kBefore);
  if (a == b || at == a.npos) return a == b;
  const std::size_t first = at + kBefore.size(), behind = first + kHash;
  if (a.size() != b.size() || a.size() < behind + 1 || a.substr(0, first) != b.substr(0, first)) return false;
  // "_15_flag_kernels_cu_f0f86f7a": the number is the length of the file's name.
  std::size_t digits = behind + 1, length = 0;
  while (digits < a.size() && a[digits] >= '0' && a[digits] <= '9')
    length = length * 10 + static_cast<std::size_t>(a[digits++] - '0');
  const std::size_t second = digits + 1 + length + 1;
  return second + kHash <= a.size() &&
         a.substr(behind, second - behind) == b.substr(behind, second - behind) &&
         a.substr(second + kHash) == b.substr(second + kHash);
}

}  // namespace

bool enter_kernels(std::span<const Kernel> kernels) {
  registry().insert(registry().end(), kernels.begin(), kernels.end());
  return true;
}

std::span<const Kernel> all_kernels() { return registry(); }

const Kernel* find_kernel(std::string_view mangled) {
  for (const Kernel& kernel : registry())
    if (same_but_for_hashes(kernel.name, mangled)) return &kernel;
  return nullptr;
}

}  // namespace fakecuda
