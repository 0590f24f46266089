#include "bootstrap/shared_memory.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "bootstrap/process_id.hpp"
#include "common/rank_list.hpp"

namespace mpi_gdr {
namespace {

// MPICH 5.0.2 takes 2072 KiB for two ranks, 4136 for four; UCX takes 4.2 MiB per rank while there is room.
constexpr std::uint64_t kMpich5PerRank = 1032 << 10, kUcxPerRank = 4300 << 10;
constexpr std::uint64_t kComfortablePerRank = 16 << 20;

std::string comfortable(std::size_t ranks) {
  return std::to_string(ranks * kComfortablePerRank >> 20) + " MiB";
}

// The mapped files mpich_shm_*, or mpich_shar_tmp* (MPICH 4.0, MVAPICH 4.0), that are not unlinked.
std::set<std::string> mpich_files() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> paths;
  for (std::string line; std::getline(maps, line);) {
    const auto at = line.find("/dev/shm/mpich_sh");
    // Skips "/dev/shm/name (deleted)": a file of another job may have that name by now.
    if (at != std::string::npos && line.find(' ', at) == std::string::npos) paths.insert(line.substr(at));
  }
  return paths;
}

// True if /dev/shm is as new as this PID namespace. False on kernels without birth times.
bool container_owns_shared_memory() {
  struct statx made{};
  if (::statx(AT_FDCWD, "/dev/shm", 0, STATX_BTIME, &made) != 0 || !(made.stx_mask & STATX_BTIME))
    return false;
  constexpr double kBefore = 5;  // seconds: runtimes mount it before they start the first process
  const auto start = start_of_pid_namespace();
  return start && static_cast<double>(made.stx_btime.tv_sec) > *start - kBefore;
}

}  // namespace

std::optional<std::uint64_t> free_shared_memory() {
  struct statvfs space{};
  if (::statvfs("/dev/shm", &space) != 0) return std::nullopt;
  return std::uint64_t{space.f_bavail} * space.f_frsize;
}

std::string warning_of_shared_memory(std::uint64_t free, std::size_t ranks, bool started) {
  const std::uint64_t taken = started ? ranks * (kMpich5PerRank + kUcxPerRank) : 0;
  if (ranks < 2 || free + taken >= ranks * kComfortablePerRank) return "";
  return "/dev/shm has " + std::to_string(free >> 10) + " KiB free for " + std::to_string(ranks) +
         " rank(s) of this host; the MPI library may crash for lack of space (expected " +
         comfortable(ranks) + ")";
}

std::string explain_shared_memory_shortage(const std::vector<int>& node_of_rank,
                                           const std::vector<std::optional<std::uint64_t>>& free,
                                           const std::string& library, bool started) {
  // Only MPICH 5 has been measured, not the MPIs derived from it.
  const std::size_t version = library.find_first_of("0123456789");
  if (library.rfind("MPICH", 0) != 0 || version == std::string::npos ||
      library.compare(version, 2, "5.") != 0)
    return "";
  const int nodes =
      node_of_rank.empty() ? 0 : *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1;
  for (int node = 0; node < nodes; ++node) {
    std::vector<int> ranks;
    std::optional<std::uint64_t> least;
    for (std::size_t r = 0; r < node_of_rank.size(); ++r) {
      if (node_of_rank[r] != node) continue;
      ranks.push_back(static_cast<int>(r));
      if (free[r]) least = std::min(least.value_or(*free[r]), *free[r]);
    }
    const std::uint64_t need = ranks.size() * kMpich5PerRank;
    if (ranks.size() < 2 || !least || *least >= (started ? kMpich5PerRank : need)) continue;
    return "/dev/shm has " + std::to_string(*least >> 10) + " KiB free on the host of ranks " +
           rank_list(ranks) + ", and MPICH needs " + std::to_string(need >> 10) +
           " KiB there; expected at least " + comfortable(ranks.size()) +
           ". Free space there, or enlarge it (mount -o remount,size=..., docker run "
           "--shm-size=...)";
  }
  return "";
}

std::string explain_unshared_memory() {
  if (mpich_files().empty() || !container_owns_shared_memory() || sees_another_rank()) return "";
  return "this rank is in a container with its own /dev/shm, where MPI looks for the other ranks that the "
         "launcher started on this host. Let the containers share /dev/shm (docker --ipc=host, "
         "apptainer without --contain), or set MASTER_ADDR and MASTER_PORT for all ranks: MPI then starts "
         "over torch's store and treats each container as a host";
}

void unlink_mpich_shared_memory() {
  for (const auto& path : mpich_files()) ::unlink(path.c_str());
}

}  // namespace mpi_gdr
