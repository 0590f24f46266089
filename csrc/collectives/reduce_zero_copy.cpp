// Reduce inside a node: each rank reduces one slice of all ranks' inputs into the root's output.
//   T = 2 barriers + n read and n/p written per rank
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void reduce_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const auto p = static_cast<std::uint64_t>(spec.size), rank = static_cast<std::uint64_t>(spec.rank);
  const Tiles from(piece({Buffer::Input, 0, spec.count}, p, rank), spec, tuning),
      to(piece({Buffer::Output, 0, spec.count}, p, rank), spec, tuning);
  meet(writer, spec);
  for (std::uint64_t i = 0; i < to.number(); ++i) {
    writer.round();
    writer.reduce(of(to.at(i), spec.root), of_all(from.at(i), spec.size), final_scale(spec.op));
  }
  meet(writer, spec);
}

}  // namespace mpigdr::collectives
