#include "bootstrap/environment.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstdlib>

extern char** environ;

namespace mpi_gdr {

void scrub_launcher_environment() {
  constexpr std::string_view kPrefixes[] = {"PMIX_", "OMPI_COMM_WORLD_", "HYDI_", "HYDRA_"};
  constexpr std::string_view kNames =  // separated by blanks
      " PMI_FD PMI_RANK PMI_SIZE PMI_PORT PMI_ID PMI_SPAWNED PMI_KVS PMI_HOSTNAME PMI_APPNUM"
      " PMI_DOMAIN PMI_JOBID PMI_LOCAL_RANK PMI_LOCAL_SIZE PMI_VERSION PMI_SUBVERSION"
      " MPI_LOCALRANKID MPI_LOCALNRANKS PMI_UNIVERSE_SIZE MPIR_CVAR_PMI_VERSION ";
  std::vector<std::string> found;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const std::string_view variable = text.substr(0, text.find('='));
    bool stale = kNames.find(' ' + std::string(variable) + ' ') != kNames.npos;
    for (auto prefix : kPrefixes) stale = stale || variable.substr(0, prefix.size()) == prefix;
    if (stale) found.emplace_back(variable);
  }
  for (const auto& variable : found) ::unsetenv(variable.c_str());
}

void set_fabric_environment(bool gpu_aware) {
  for (const char* variable :
       {"IBV_FORK_SAFE", "RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE", "FI_EFA_FORK_SAFE", "CXI_FORK_SAFE"})
    ::setenv(variable, "1", 0);
  ::setenv("UCX_TCP_KEEPIDLE", "inf", 0);
  if (gpu_aware && !control_is_set("GPU_HAS_WAIT_KERNEL")) ::setenv("MPIR_CVAR_GPU_HAS_WAIT_KERNEL", "1", 0);
}

std::vector<const char*> set_one_host_environment() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  bool up = false;
  for (const ifaddrs* a = all; a; a = a->ifa_next)
    up = up || (std::string_view(a->ifa_name) == "lo" && a->ifa_flags & IFF_UP && a->ifa_addr &&
                a->ifa_addr->sa_family == AF_INET);
  ::freeifaddrs(all);
  std::vector<const char*> set;
  const bool transports_chosen = std::getenv("UCX_TLS");
  for (const char* variable : {"UCX_NET_DEVICES", "FI_TCP_IFACE", "FI_SOCKETS_IFACE"}) {
    if (!up || std::getenv(variable) || (*variable == 'U' && transports_chosen)) continue;
    ::setenv(variable, "lo", 1);
    set.push_back(variable);
  }
  return set;
}

const char* control(const std::string& name) {
  for (const char* prefix : {"MPIR_CVAR_", "MPIR_PARAM_", "MPICH_", "MVP_", "MV2_", "I_MPI_"})
    if (const char* value = std::getenv((prefix + name).c_str())) return value;
  return nullptr;
}

bool control_is_on(const std::string& name) {
  const char* const value = control(name);
  return value && std::string_view(" 1 yes YES true TRUE on ON ").find(' ' + std::string(value) + ' ') !=
                      std::string_view::npos;
}

bool is_gpu_aware(std::string_view version, std::string_view device, std::optional<bool> answer) {
  if (answer == false) return false;
  const auto is = [&](std::string_view name) { return version.find(name) != version.npos; };
  const auto is_set = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value && *value && std::string_view(value) != "0";
  };
  // MVAPICH's `answer` reports only how the library was built.
  if (is("MVAPICH2")) return is_set("MV2_USE_CUDA");
  if (is("MVAPICH") && device.starts_with("ch3")) return is_set("MVP_USE_CUDA");
  return answer.value_or((is("CRAY MPICH") && is_set("MPICH_GPU_SUPPORT_ENABLED")) ||
                         (is("Intel") && is_set("I_MPI_OFFLOAD")));
}

}  // namespace mpi_gdr
