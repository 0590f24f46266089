// Every MPI_GDR_* variable, read at the first get(); immutable and thread-safe afterwards. Invalid values
// throw InvalidUsage naming the variable.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/types.hpp"

namespace mpi_gdr {

enum class LogLevel : std::uint8_t { Warn, Info, Detail, Trace };
enum class MessagePath : std::uint8_t { Auto, Shm, Mpi };
enum class BootstrapMode : std::uint8_t { Auto, Launcher, Store };
enum class NodeEngine : std::uint8_t { Auto, Nccl, Own };
template <>
inline constexpr auto kNames<LogLevel> = names("WARN", "INFO", "DETAIL", "TRACE");
template <>
inline constexpr auto kNames<BootstrapMode> = names("auto", "launcher", "store");

template <>
inline constexpr auto kNames<NodeEngine> = names("auto", "nccl", "own");

class Env {
 public:
  enum class Choice : std::uint8_t { Auto, On, Off };

  static const Env& get();

#define SETTING(type, field, ...) type field{};  // the default is parsed, too
#include "common/settings.inc"
#undef SETTING
  std::string algorithm[kCollectiveCount];  // MPI_GDR_<COLLECTIVE>_ALGO

  enum class Audience : std::uint8_t { Users, Experts };
  // Equal: compared when a group is created (selection_source.hpp). EqualAtStart: before MPI starts.
  enum class Ranks : std::uint8_t { Any, Equal, EqualAtStart };
  struct Variable {
    std::string name, default_value;
    Audience audience;
    Ranks ranks;
    std::string description, allowed;
    std::string value;  // in canonical form; "(set)" for a secret
    bool from_environment = false;
  };
  const std::vector<Variable>& table() const { return table_; }

  // Reads from `lookup` (name -> value or nullptr) instead of the process environment: for tests.
  using Lookup = std::function<const char*(const char*)>;
  explicit Env(const Lookup& lookup);

  // {unknown name, nearest known name} for each MPI_GDR_* of an environment block, except setup.py's.
  static std::vector<std::pair<std::string, std::string>> unknown_variables(const char* const* environment);

  static std::string algorithm_variable(Collective collective);

 private:
  std::vector<Variable> table_;
};

}  // namespace mpi_gdr
