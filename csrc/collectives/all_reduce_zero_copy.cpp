// All-reduce inside a node: each rank reduces one slice of all ranks' inputs, and stores it in all outputs.
//   T = 2 barriers + 2n/p per rank through each of p buffers: 2pn moved by p ranks at once, the least that an
//       in-place all-reduce can do
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void all_reduce_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const auto p = static_cast<std::uint64_t>(spec.size), rank = static_cast<std::uint64_t>(spec.rank);
  const Slice output{Buffer::Output, 0, spec.count};
  const Contribution contribution(writer, spec);
  contribution.scale({Buffer::Input, 0, spec.count});  // before the others read it
  const Slice own = contribution.at({Buffer::Input, 0, spec.count});
  meet(writer, spec);
  const Tiles from(piece(own, p, rank), spec, tuning), to(piece(output, p, rank), spec, tuning);
  for (std::uint64_t i = 0; i < to.number(); ++i) {
    writer.round();
    writer.reduce(to.at(i), of_all(from.at(i), spec.size), final_scale(spec.op));
    writer.round();
    for (int k = 1; k < spec.size; ++k) writer.copy(of(to.at(i), wrap(spec.rank + k, spec.size)), to.at(i));
  }
  meet(writer, spec);
}

}  // namespace mpigdr::collectives
