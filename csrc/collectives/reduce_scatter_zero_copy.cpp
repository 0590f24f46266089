// Reduce-scatter inside a node: each rank reduces its block of all ranks' inputs.
//   T = 2 barriers + pn read and n written, for blocks of n
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void reduce_scatter_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  const Tiles from(blocks.at(Buffer::Input, spec.rank), spec, tuning),
      to({Buffer::Output, 0, blocks.count(spec.rank)}, spec, tuning);
  meet(writer, spec);
  for (std::uint64_t i = 0; i < to.number(); ++i) {
    writer.round();
    writer.reduce(to.at(i), of_all(from.at(i), spec.size), final_scale(spec.op));
  }
  meet(writer, spec);
}

}  // namespace mpigdr::collectives
