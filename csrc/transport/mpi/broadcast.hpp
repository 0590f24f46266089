// Bytes from one rank to all over the base communicator: how ranks agree on an address before there is a
// store.
#pragma once

#include <chrono>
#include <string>

namespace mpigdr::mpi {

// Collective over all ranks of the job, after initialize(); blocks. `text` of `root` replaces everybody's.
// Ends the process with a message if a rank does not come within `timeout`.
void broadcast(std::string& text, int root, std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace mpigdr::mpi
