// A job whose ranks are threads of one process: the network under the unit tests of job/. Each rank sits on a
// host of its own, as far as anybody can tell.
#pragma once

#include <memory>
#include <vector>

#include "transport/network.hpp"

namespace mpigdr {

// One per rank, 0..size-1. They share one job, which lives as long as any of them. start() meets over the
// store; the transports are make_loopback()'s.
std::vector<std::unique_ptr<Network>> make_loopback_networks(int size);

}  // namespace mpigdr
