#include "cudart/call_site.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "gpu/mutant.hpp"

namespace fakecuda {
namespace {

bool is_between(const std::string& module) {
  return module.find("/libcudart") != module.npos || module.find("/libcuda.so") != module.npos ||
         module.find("/libmpi_gdr_cuda") != module.npos;
}

// The first caller outside this library and the device library on it.
std::string call_site() {
  void* frames[24];
  const int count = ::backtrace(frames, 24);
  for (int i = 0; i < count; ++i) {
    Dl_info module;
    if (::dladdr(frames[i], &module) == 0 || is_between(module.dli_fname)) continue;
    const std::string_view path = module.dli_fname;
    const auto begin = reinterpret_cast<std::uintptr_t>(module.dli_fbase);
    char offset[32];
    std::snprintf(offset, sizeof offset, "+%zx", reinterpret_cast<std::uintptr_t>(frames[i]) - begin);
    return std::string(path.substr(path.rfind('/') + 1)) + offset;
  }
  return "?";
}

}  // namespace

bool call_left_out(std::string_view kind) { return mutating() && left_out(kind, call_site()); }

bool launch_left_out(std::string_view kernel) {
  if (!mutating()) return false;
  const auto named = [&](const char* part) { return kernel.find(part) != kernel.npos; };
  if (named("wait_kernel")) return call_left_out("stream_wait");
  return named("write_kernel") && call_left_out("flag_write");
}

}  // namespace fakecuda
