// Preloaded library: records, in order, the functions built with -finstrument-functions that a thread enters
// between its calls of mpi_gdr_calls_begin() and mpi_gdr_calls_end().
#include <dlfcn.h>

#include <cstdio>
#include <vector>

namespace {

struct Enter {
  void* function;
  int depth;
};
thread_local std::vector<Enter>* entered = nullptr;
thread_local int depth = 0;

}  // namespace

extern "C" {

__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void* function, void*) {
  ++depth;
  if (entered) entered->push_back({function, depth});
}

__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void*, void*) { --depth; }

void mpi_gdr_calls_begin() {
  entered = new std::vector<Enter>;
  entered->reserve(1 << 16);
}

// Writes a line per entered function: depth, library, address in the library.
void mpi_gdr_calls_end(const char* path) {
  const std::vector<Enter>* const all = entered;
  entered = nullptr;
  std::FILE* const file = std::fopen(path, "w");
  if (!file) return;
  for (const Enter& e : *all) {
    Dl_info info{};
    if (!dladdr(e.function, &info)) continue;
    std::fprintf(
        file, "%d %s %zx\n", e.depth, info.dli_fname,
        static_cast<std::size_t>(static_cast<char*>(e.function) - static_cast<char*>(info.dli_fbase)));
  }
  std::fclose(file);
  delete all;
}
}
