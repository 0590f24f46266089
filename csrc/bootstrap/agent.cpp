#include "bootstrap/agent.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace mpigdr {
namespace {

constexpr const char* kMark = "TORCHELASTIC_RUN_ID";  // which the agent gives to what it starts

// Whether a process was started with the variable, as far as it may be looked at.
bool started_with_mark(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string all = '\0' + std::string(std::istreambuf_iterator<char>(file), {});
  return all.find(std::string(1, '\0') + kMark + '=') != std::string::npos;
}

}  // namespace

std::optional<ProcessId> torchrun_agent() {
  if (!std::getenv(kMark)) return std::nullopt;
  // Wrappers have the agent's variables, the agent has not.
  constexpr int kMostWrappers = 32;
  ProcessId process = own_process();
  if (process.domain == 0) return std::nullopt;
  for (int i = 0; i < kMostWrappers; ++i) {
    const std::int64_t parent = parent_of(process.pid);
    if (parent <= 1) return std::nullopt;
    process.pid = parent;
    if (started_with_mark(parent)) continue;
    process.started = started_at(parent);
    return process.started ? std::optional(process) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace mpigdr
