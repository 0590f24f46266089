// Scatter in one step: the root sends every rank its block.
//   T = (p-1) alpha + (p-1)/p n beta, n = all blocks together; the root's messages overlap
//   steps 1, messages from the root p-1, bytes sent by the root (p-1)/p n, reductions 0
// Source: the plain definition, MPI standard, section "Scatter".
#include "collectives/build.hpp"

namespace mpigdr::collectives {

SchedulePtr scatter_linear(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("linear", spec);
  ScheduleWriter writer("linear");
  writer.one_way();
  writer.lane();
  writer.round();
  const Slice mine{Buffer::Output, 0, spec.count};
  if (spec.rank != spec.root) {
    writer.recv(spec.root, mine);
    return writer.finish();
  }
  const Blocks blocks(spec);
  for (int s = 1; s < spec.size; ++s) {
    const int to = wrap(spec.root + s, spec.size);
    writer.send(to, blocks.at(Buffer::Input, to));
  }
  writer.copy(mine, blocks.at(Buffer::Input, spec.root));
  return writer.finish();
}

}  // namespace mpigdr::collectives
