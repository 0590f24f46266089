// How far the ranks of a group can access each other's memory.
#pragma once

#include <cstdint>

#include "common/names.hpp"

namespace mpi_gdr {

enum class Reach : std::uint8_t {
  None,
  Segments,  // shared segments
  All,       // any other memory as well
  Devices,   // shared device memory
  Library,   // NCCL's calls
  // In groups over several nodes, inside this rank's node:
  Nodes,         // shared segments
  NodesDevices,  // shared device memory
  NodesLibrary,  // NCCL's calls
};

template <>
inline constexpr auto kNames<Reach> = names("none", "segments", "all");

}  // namespace mpi_gdr
