// Operations that run in a process: shows whether one of them had the process to itself.
#pragma once

#include <cstdint>

namespace mpi_gdr {

// Of an engine, in all its groups. Used by the holder of the progress role only.
struct Traffic {
  std::uint64_t started = 0, ended = 0;
};

}  // namespace mpi_gdr
