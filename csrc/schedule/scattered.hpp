// Schedules on buffers that lie in several pieces: the blocks of the ranks of a node in the Output of a group
// over several nodes, a part of each block.
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

// By rank, of all ranks of the schedule, as one of others' memory names their buffers, too; or one for all of
// them. Empty: where they stand. `ranks`: what they are called in the other schedule; empty: the same.
struct Scattered {
  std::vector<Pieces> input = {}, output = {};
  std::vector<int> ranks = {};
};

// The same for rank `rank`, where the buffers are in pieces: slices and originals are moved, and a step is
// cut where one of its slices passes from one piece into the next. Both sides of a message must pass from
// piece to piece at the same elements. Pure, thread-safe.
SchedulePtr scattered(const Schedule& schedule, int rank, const Scattered& where);

}  // namespace mpi_gdr
