// Maps schedules onto buffers in several pieces, such as the blocks of one node's ranks in a group's Output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

struct Piece {
  std::uint64_t offset = 0, count = 0;  // elements
};
using Pieces = std::vector<Piece>;

// Maps elements of a buffer without gaps to the pieces that store it. Throws Internal beyond the end.
class PieceMap {
 public:
  explicit PieceMap(Pieces pieces);
  std::uint64_t offset_of(std::uint64_t element) const;
  std::uint64_t contiguous(std::uint64_t element) const;  // number of contiguous elements from this one on

 private:
  std::size_t piece_of(std::uint64_t element) const;

  Pieces pieces_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t total_ = 0;
};

// Pieces by rank of the schedule, or one entry for all; `ranks`: new numbers of its ranks. Empty: unchanged.
struct Scattered {
  std::vector<Pieces> input = {}, output = {};
  std::vector<int> ranks = {};
};

// Returns the schedule of `rank` on pieces. Cuts a step where a slice crosses pieces; both ends of a message
// must have the same cuts. Thread-safe.
SchedulePtr scattered(const Schedule& schedule, int rank, const Scattered& where);

}  // namespace mpi_gdr
