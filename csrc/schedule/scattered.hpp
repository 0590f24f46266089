// Schedules on buffers in several pieces: the blocks of a node's ranks in a group's Output, parts of blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Where a buffer's elements are, in their order.
struct Piece {
  std::uint64_t offset = 0, count = 0;  // elements
};
using Pieces = std::vector<Piece>;

// By rank, or one for all; empty: as they are. `ranks`: their names in the other schedule; empty: the same.
struct Scattered {
  std::vector<Pieces> input = {}, output = {};
  std::vector<int> ranks = {};
};

// The schedule of `rank` with its buffers in pieces: slices and originals are moved, and a step is cut where
// a slice passes from one piece into the next: equally on both sides of a message. Pure, thread-safe.
SchedulePtr scattered(const Schedule& schedule, int rank, const Scattered& where);

}  // namespace mpi_gdr
