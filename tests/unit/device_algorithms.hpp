// Algorithms for the tests of devices.
#pragma once

#include <string_view>

#include "collectives/collectives.hpp"

namespace mpi_gdr {

// Runs on memory that the devices of a node's ranks share.
inline bool runs_on_devices(const Algorithm& algorithm) {
  const std::string_view name = algorithm.name;
  return !algorithm.native() && algorithm.shared && name != "zero_copy" && name != "adaptive";
}

}  // namespace mpi_gdr
