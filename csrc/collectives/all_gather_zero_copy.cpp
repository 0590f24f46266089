// All-gather inside a node: each rank copies the others' blocks from where they are.
//   T = 2 barriers + (p-1)/p n copied per rank
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void all_gather_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  meet(writer, spec);
  for (int k = 0; k < spec.size; ++k) {
    const int r = wrap(spec.rank + k, spec.size);
    copy_in_tiles(writer, blocks.at(Buffer::Output, r),
                  {Buffer::Input, 0, blocks.count(r), r == spec.rank ? -1 : r}, spec, tuning);
  }
  meet(writer, spec);
}

}  // namespace mpigdr::collectives
