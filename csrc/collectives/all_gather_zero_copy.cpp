// All-gather inside a node: each rank writes its block, likely in this core's cache, into the others'
// outputs. Copying from that cache costs half as much as a read by another core.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void all_gather_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  const Slice own{Buffer::Input, 0, blocks.count(spec.rank)}, block = blocks.at(Buffer::Output, spec.rank);
  barrier(writer, spec);
  copy_to_all(writer, block, own, spec, tuning);
  writer.round();
  writer.signal();
  copy_in_tiles(writer, block, own, spec, tuning);  // no rank waits for it
  writer.round();
  for (int k = 1; k < spec.size; ++k) writer.wait(wrap(spec.rank + k, spec.size));
}

}  // namespace mpi_gdr::collectives
