// Gather inside a node: each rank writes most of its block into the root's output, the root reads the rest.
//   T = 2 barriers + n/p copied per rank
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void gather_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Slice own{Buffer::Input, 0, spec.count};
  const auto block = [&](int r) { return Slice{Buffer::Output, block_offset(spec, r), spec.count}; };
  meet_root(writer, spec, Way::Both);
  if (spec.rank == spec.root) {
    copy_in_tiles(writer, block(spec.rank), own, spec, tuning);
    for (int k = 1; k < spec.size; ++k) {
      const int r = wrap(spec.rank + k, spec.size);
      copy_in_tiles(writer, share_of_root(block(r), spec), of(share_of_root(own, spec), r), spec, tuning);
    }
  } else {
    copy_in_tiles(writer, of(share_of_other(block(spec.rank), spec), spec.root), share_of_other(own, spec),
                  spec, tuning);
  }
  meet_root(writer, spec, Way::Both);
}

}  // namespace mpigdr::collectives
