#include "transport/nccl/library.hpp"

#include <dlfcn.h>

namespace mpi_gdr::nccl {
namespace {

// From 2.19.1 on several communicators may be aborted at once, from several threads.
constexpr int kOldest = 21901;

struct Found {
  Library functions;
  std::string why;  // "": usable
};

Found find() {
  Found found;
  void* file = nullptr;
  for (const char* const name : {"libnccl.so.2", "librccl.so.1"})
    if (!file) file = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (!file) {
    found.why = "this process has loaded no NCCL";
    return found;
  }
  Library& functions = found.functions;
#define FUNCTION(result, function, ...)                                                            \
  functions.function = reinterpret_cast<result (*)(__VA_ARGS__)>(::dlsym(file, "nccl" #function)); \
  if (!functions.function && found.why.empty()) found.why = "this process's NCCL has no nccl" #function;
  MPI_GDR_NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
  if (!found.why.empty()) return found;
  if (functions.GetVersion(&functions.version) != kSuccess || functions.version < kOldest)
    found.why = "NCCL " + version_text(functions.version) + " is older than " + version_text(kOldest);
  return found;
}

}  // namespace

const Library* find_library(std::string& why) {
  static const Found found = find();
  why = found.why;
  return why.empty() ? &found.functions : nullptr;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

}  // namespace mpi_gdr::nccl
