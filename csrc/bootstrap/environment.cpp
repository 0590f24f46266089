#include "bootstrap/environment.hpp"

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

extern char** environ;

namespace mpigdr {

void scrub_launcher_environment() {
  constexpr std::string_view kPrefixes[] = {"PMIX_", "OMPI_COMM_WORLD_", "HYDI_", "HYDRA_"};
  constexpr std::string_view kNames[] = {"PMI_FD",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "PMI_PORT",
                                         "PMI_ID",
                                         "PMI_SPAWNED",
                                         "PMI_KVS",
                                         "PMI_HOSTNAME",
                                         "PMI_APPNUM",
                                         "PMI_DOMAIN",
                                         "PMI_JOBID",
                                         "PMI_LOCAL_RANK",
                                         "PMI_LOCAL_SIZE",
                                         "PMI_VERSION",
                                         "PMI_SUBVERSION",
                                         "MPI_LOCALRANKID",
                                         "MPI_LOCALNRANKS",
                                         "PMI_UNIVERSE_SIZE",
                                         "MPIR_CVAR_PMI_VERSION"};
  std::vector<std::string> found;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const std::string_view variable = text.substr(0, text.find('='));
    bool stale = false;
    for (auto prefix : kPrefixes) stale = stale || variable.substr(0, prefix.size()) == prefix;
    for (auto exact : kNames) stale = stale || variable == exact;
    if (stale) found.emplace_back(variable);
  }
  for (const auto& variable : found) ::unsetenv(variable.c_str());
}

void set_fork_safe_environment() {
  for (const char* variable :
       {"IBV_FORK_SAFE", "RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE", "FI_EFA_FORK_SAFE", "CXI_FORK_SAFE"})
    ::setenv(variable, "1", 0);
}

void set_oversubscribed_environment() { ::setenv("MPIR_CVAR_DEVICE_COLLECTIVES", "none", 0); }

}  // namespace mpigdr
