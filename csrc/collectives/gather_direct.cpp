// Gather inside a node: each rank writes its block into the root's output.
//   T = 2 barriers + n/p copied per rank
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr gather_direct(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("direct", spec);
  ScheduleWriter writer("direct");
  const Slice own{Buffer::Input, 0, spec.count};
  meet_root(writer, spec, Way::FromRoot);
  copy_in_tiles(
      writer,
      {Buffer::Output, block_offset(spec, spec.rank), spec.count, spec.rank == spec.root ? -1 : spec.root},
      own, spec, tuning);
  meet_root(writer, spec, Way::ToRoot);
  return writer.finish();
}

}  // namespace mpigdr::collectives
