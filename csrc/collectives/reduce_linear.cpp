// Reduce of short inputs: the root receives all inputs in scratch and folds them in one pass, in rank order.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

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
