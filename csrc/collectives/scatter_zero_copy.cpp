// Scatter inside a node: each rank copies its block from the root's input.
//   T = 2 barriers + n/p copied per rank
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void scatter_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  meet_root(writer, spec, Way::FromRoot);
  copy_in_tiles(
      writer, {Buffer::Output, 0, spec.count},
      {Buffer::Input, block_offset(spec, spec.rank), spec.count, spec.rank == spec.root ? -1 : spec.root},
      spec, tuning);
  meet_root(writer, spec, Way::ToRoot);
}

}  // namespace mpigdr::collectives
