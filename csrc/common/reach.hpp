// How far the ranks of a group reach into each other's memory (transport/shm finds out).
#pragma once

#include <cstdint>

#include "common/names.hpp"

namespace mpi_gdr {

enum class Reach : std::uint8_t {
  None,
  Segments,  // what they share
  All,       // also any other memory
  Devices,   // memory of their devices that they share
  // In a group over several nodes, inside some of them:
  Nodes,         // what they share
  NodesDevices,  // memory of their devices that they share
};

// Inside a node.
template <>
inline constexpr auto kNames<Reach> = names("none", "segments", "all");

}  // namespace mpi_gdr
