// Which algorithms the tests of devices run. Included by peer_meeting.hpp and tests/fakecuda/peer_runs.hpp.
#pragma once

#include <string_view>

#include "collectives/collectives.hpp"

namespace mpi_gdr {

// On memory that the devices of a node's ranks share.
inline bool runs_on_devices(const Algorithm& algorithm) {
  const std::string_view name = algorithm.name;
  return !algorithm.native() && algorithm.shared && name != "zero_copy" && name != "adaptive";
}

}  // namespace mpi_gdr
