// Gather inside a node: each rank writes its block into the root's output.
//   T = 2 barriers + n/p copied per rank
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void gather_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Slice own{Buffer::Input, 0, spec.count};
  meet_root(writer, spec, Way::FromRoot);
  copy_in_tiles(
      writer,
      {Buffer::Output, block_offset(spec, spec.rank), spec.count, spec.rank == spec.root ? -1 : spec.root},
      own, spec, tuning);
  meet_root(writer, spec, Way::ToRoot);
}

}  // namespace mpigdr::collectives
