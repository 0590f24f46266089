#include "gpu/fault.hpp"

#include <cstdio>
#include <cstdlib>

#include "gpu/thread.hpp"

namespace fakecuda {

void fault(const char* rule, const void* address) {
  std::fprintf(stderr, "fakecuda: %s", rule);
  if (address) std::fprintf(stderr, ": %p", address);
  if (const Thread* const thread = running_thread())
    std::fprintf(stderr, " in thread %u of block %u of %.*s", thread->tid, thread->ctaid,
                 static_cast<int>(thread->kernel.name.size()), thread->kernel.name.data());
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace fakecuda
