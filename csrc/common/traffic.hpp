// Counts the operations of an engine, to detect whether one of them ran alone.
#pragma once

#include <cstdint>

namespace mpi_gdr {

// Used by the holder of the progress role only.
struct Traffic {
  std::uint64_t started = 0, ended = 0;
};

}  // namespace mpi_gdr
