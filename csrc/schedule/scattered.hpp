// Maps schedules onto buffers in several pieces, such as the blocks of one node's ranks in a group's Output.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

struct Piece {
  std::uint64_t offset = 0, count = 0;  // elements
};
using Pieces = std::vector<Piece>;

// Pieces by rank of the schedule, or one entry for all; `ranks`: new numbers of its ranks. Empty: unchanged.
struct Scattered {
  std::vector<Pieces> input = {}, output = {};
  std::vector<int> ranks = {};
};

// Returns the schedule of `rank` on pieces. Cuts a step where a slice crosses pieces; both ends of a message
// must have the same cuts. Thread-safe.
SchedulePtr scattered(const Schedule& schedule, int rank, const Scattered& where);

}  // namespace mpi_gdr
