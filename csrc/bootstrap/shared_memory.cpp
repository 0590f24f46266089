#include "bootstrap/shared_memory.hpp"

#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

namespace mpigdr {

void unlink_mpich_shared_memory() {
  // The kernel tells the name, so nothing has to be known of how MPICH makes it.
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> paths;
  for (std::string line; std::getline(maps, line);) {
    const auto at = line.find("/dev/shm/mpich_shm_");
    // "/dev/shm/name (deleted)" has lost its name already, and another job's file may carry it now.
    if (at != std::string::npos && line.find(' ', at) == std::string::npos) paths.insert(line.substr(at));
  }
  for (const auto& path : paths) ::unlink(path.c_str());
}

}  // namespace mpigdr
