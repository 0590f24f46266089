// Gather, scatter and the reduce of short inputs in one step: a message between the root and each rank,
// without intermediate copies. A reduce's root receives all inputs in scratch and folds them in one pass, in
// rank order.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void gather_linear(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  const Slice mine{Buffer::Input, 0, spec.count};
  if (spec.rank != spec.root) return writer.send(spec.root, mine);
  const Blocks blocks(spec);
  for (int s = 1; s < spec.size; ++s) {
    const int from = wrap(spec.root + s, spec.size);
    writer.recv(from, blocks.at(Buffer::Output, from));
  }
  writer.copy(blocks.at(Buffer::Output, spec.root), mine);
}

void scatter_linear(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  const Slice mine{Buffer::Output, 0, spec.count};
  if (spec.rank != spec.root) return writer.recv(spec.root, mine);
  const Blocks blocks(spec);
  for (int s = 1; s < spec.size; ++s) {
    const int to = wrap(spec.root + s, spec.size);
    writer.send(to, blocks.at(Buffer::Input, to));
  }
  writer.copy(mine, blocks.at(Buffer::Input, spec.root));
}

void reduce_linear(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  writer.lane();
  const Slice input{Buffer::Input, 0, spec.count};
  const Contribution contribution(writer, spec);
  contribution.scale(input);
  const Slice own = contribution.at(input);
  writer.round();
  if (spec.rank != spec.root) return writer.send(spec.root, own);
  std::vector<Slice> sources;
  for (int r = 0; r < spec.size; ++r) {
    sources.push_back(r == spec.rank ? own : writer.scratch(spec.count));
    if (r != spec.rank) writer.recv(r, sources.back());
  }
  writer.round();
  writer.reduce({Buffer::Output, 0, spec.count}, sources, final_scale(spec.op));
}

}  // namespace mpi_gdr::collectives
