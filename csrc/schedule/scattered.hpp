// Schedules on buffers in several pieces: blocks of a node's ranks in a group's Output, parts of blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

struct Piece {
  std::uint64_t offset = 0, count = 0;  // elements
};
using Pieces = std::vector<Piece>;

// Pieces by rank, or one entry for all. `ranks`: their ranks in the result. Empty: unchanged.
struct Scattered {
  std::vector<Pieces> input = {}, output = {};
  std::vector<int> ranks = {};
};

// The schedule of `rank` on pieces; cuts steps where a slice crosses pieces, alike on all ranks. Thread-safe.
SchedulePtr scattered(const Schedule& schedule, int rank, const Scattered& where);

}  // namespace mpi_gdr
