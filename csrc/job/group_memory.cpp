#include "job/group_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "common/env.hpp"

namespace mpi_gdr {
namespace {

constexpr std::uint64_t kMostByDefault = std::uint64_t{64} << 30;

// 0 if address space is limited: a rank maps the limits of all ranks of its node, used or not.
std::uint64_t default_limit() {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return 0;
  // 0 with strict accounting: a page beyond the commit limit raises SIGBUS when touched; no call fails.
  int overcommit = 0;
  if (std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit; overcommit == 2) return 0;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  return std::min(kMostByDefault, static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) / 4);
}

}  // namespace

shm::Arena* group_arena() {
  static const std::uint64_t limit = [](const Env& env) {
    return !env.node_memory ? 0 : env.group_memory ? *env.group_memory : default_limit();
  }(Env::get());
  return shm::Arena::own(limit);
}

}  // namespace mpi_gdr
