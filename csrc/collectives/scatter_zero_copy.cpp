// Scatter inside a node: each rank reads most of its block from the root's input, the root writes the rest.
//   T = 2 barriers + n/p copied per rank
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void scatter_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Slice own{Buffer::Output, 0, spec.count};
  const auto block = [&](int r) { return Slice{Buffer::Input, block_offset(spec, r), spec.count}; };
  meet_root(writer, spec, Way::Both);
  if (spec.rank == spec.root) {
    for (int k = 1; k < spec.size; ++k) {
      const int r = wrap(spec.rank + k, spec.size);
      copy_in_tiles(writer, of(share_of_root(own, spec), r), share_of_root(block(r), spec), spec, tuning);
    }
    copy_in_tiles(writer, own, block(spec.rank), spec, tuning);
  } else {
    copy_in_tiles(writer, share_of_other(own, spec), of(share_of_other(block(spec.rank), spec), spec.root),
                  spec, tuning);
  }
  meet_root(writer, spec, Way::Both);
}

}  // namespace mpigdr::collectives
