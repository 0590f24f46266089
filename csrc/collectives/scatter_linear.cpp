// Scatter in one step: the root sends every rank its block.
//   T = (p-1) alpha + (p-1)/p n beta, n = all blocks together; the root's messages overlap
//   steps 1, messages from the root p-1, bytes sent by the root (p-1)/p n, reductions 0
// Source: the plain definition, MPI standard, section "Scatter".
#include "collectives/build.hpp"

namespace mpigdr::collectives {

void scatter_linear(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  writer.lane();
  writer.round();
  const Slice mine{Buffer::Output, 0, spec.count};
  if (spec.rank != spec.root) {
    writer.recv(spec.root, mine);
    return;
  }
  const Blocks blocks(spec);
  for (int s = 1; s < spec.size; ++s) {
    const int to = wrap(spec.root + s, spec.size);
    writer.send(to, blocks.at(Buffer::Input, to));
  }
  writer.copy(mine, blocks.at(Buffer::Input, spec.root));
}

}  // namespace mpigdr::collectives
