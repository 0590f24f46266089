// Broadcast inside a node: the root writes 1/p of the data to each rank, which copies the rest from the root.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void broadcast_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const auto p = static_cast<std::uint64_t>(spec.size);
  const Slice whole{Buffer::Output, 0, spec.count};
  const Slice pushed = piece(whole, p, 0);
  const Slice pulled{Buffer::Output, pushed.count, spec.count - pushed.count};
  barrier_with_root(writer, spec, Way::Both);
  if (spec.rank == spec.root) {
    copy_to_all(writer, pushed, pushed, spec, tuning);
  } else {
    copy_in_tiles(writer, pulled, of(pulled, spec.root), spec, tuning);
  }
  barrier_with_root(writer, spec, Way::Both);
}

}  // namespace mpi_gdr::collectives
