// Which algorithms the tests of devices run. Included by peer_meeting.hpp and tests/fakecuda/peer_runs.hpp.
#pragma once

#include <cstring>

#include "collectives/collectives.hpp"

namespace mpigdr {

// On memory that the devices of a node's ranks share.
inline bool runs_on_devices(const Algorithm& algorithm) {
  return !algorithm.native() && algorithm.shared && std::strcmp(algorithm.name, "zero_copy") != 0;
}

}  // namespace mpigdr
