#include "bootstrap/host.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "common/host_name.hpp"
#include "common/memory_file.hpp"

namespace mpi_gdr {
namespace {

constexpr std::size_t kMaxMapping = 1023;  // below the 1024 that the PMI server announces

std::size_t period(const std::vector<int>& v) {
  for (std::size_t p = 1; p < v.size(); ++p)
    if (v.size() % p == 0 && std::equal(v.begin() + static_cast<std::ptrdiff_t>(p), v.end(), v.begin()))
      return p;
  return v.size();
}

}  // namespace

std::string host_identity() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  struct stat info{};
  const bool known = ::stat("/dev/shm", &info) == 0;
  return host_name() + "|" + boot + "|" + (known ? std::to_string(info.st_dev) : "none");
}

std::string namespaces(const std::string& process) {
  std::string found;
  for (const char* kind : {"pid", "net"}) {
    char name[128] = "";
    if (::readlink(("/proc/" + process + "/ns/" + kind).c_str(), name, sizeof name - 1) <= 0) return "";
    found += name;
  }
  return found;
}

std::string usable_cpus() {
  // A fixed cpu_set_t ends at 1024 processors; the call fails until the set is large enough.
  for (int bits = 1024; bits <= 1 << 18; bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(bits);
    const std::size_t bytes = CPU_ALLOC_SIZE(bits);
    CPU_ZERO_S(bytes, set);
    std::string text;
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    if (known)
      for (int cpu = 0; cpu < bits; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) text += (text.empty() ? "" : ",") + std::to_string(cpu);
    CPU_FREE(set);
    if (known) return text;
    if (errno != EINVAL) break;
  }
  return "";
}

std::string random_nonce() {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(draw_nonce()));
  return text;
}

std::vector<int> number_nodes(const std::vector<std::string>& identities) {
  std::map<std::string, int> seen;
  std::vector<int> nodes;
  for (const auto& identity : identities)
    nodes.push_back(seen.emplace(identity, static_cast<int>(seen.size())).first->second);
  return nodes;
}

bool oversubscribed(const std::vector<int>& node_of_rank, const std::vector<std::string>& cpus_of_rank) {
  std::map<int, std::set<std::string>> cpus;
  std::map<int, std::size_t> ranks;
  for (std::size_t r = 0; r < node_of_rank.size(); ++r) {
    ++ranks[node_of_rank[r]];
    std::istringstream list(cpus_of_rank[r]);
    for (std::string cpu; std::getline(list, cpu, ',');) cpus[node_of_rank[r]].insert(cpu);
  }
  for (const auto& [node, count] : ranks)
    if (!cpus[node].empty() && count > cpus[node].size()) return true;
  return false;
}

std::string binding_problem(const std::string& own_cpus, int ranks_on_node, int cpus_of_node) {
  const bool one = !own_cpus.empty() && own_cpus.find(',') == std::string::npos;
  if (!one || cpus_of_node < 2 * ranks_on_node) return "";
  return "this rank is bound to processor " + own_cpus + " only, of " + std::to_string(cpus_of_node) +
         " for " + std::to_string(ranks_on_node) +
         " rank(s) of its node: the progress thread shares it with the program. Bind each rank to several "
         "processors (mpirun --bind-to none, or --cpus-per-task)";
}

std::optional<std::string> process_mapping(const std::vector<int>& node_of_rank) {
  struct Block {
    int first, nodes, ranks;
  };
  std::vector<Block> blocks;
  const std::size_t end = period(node_of_rank);
  for (std::size_t at = 0; at < end;) {
    std::size_t next = at;
    while (next < end && node_of_rank[next] == node_of_rank[at]) ++next;
    const int ranks = static_cast<int>(next - at), node = node_of_rank[at];
    if (!blocks.empty() && blocks.back().ranks == ranks && blocks.back().first + blocks.back().nodes == node)
      ++blocks.back().nodes;
    else
      blocks.push_back({node, 1, ranks});
    at = next;
  }
  if (end == 1) blocks[0].ranks = static_cast<int>(node_of_rank.size());
  std::ostringstream text;
  text << "(vector";
  for (const Block& b : blocks) text << ",(" << b.first << "," << b.nodes << "," << b.ranks << ")";
  text << ")";
  if (text.str().size() > kMaxMapping) return std::nullopt;
  return text.str();
}

}  // namespace mpi_gdr
