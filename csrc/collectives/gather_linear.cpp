// Gather in one step: every rank sends its block to the root, straight into place.
//   T = (p-1) alpha + (p-1)/p n beta, n = all blocks together; the root's messages overlap
//   steps 1, messages to the root p-1, bytes sent per rank n/p, reductions 0
// Source: the plain definition, MPI standard, section "Gather".
#include "collectives/build.hpp"

namespace mpigdr::collectives {

void gather_linear(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  writer.lane();
  writer.round();
  const Slice mine{Buffer::Input, 0, spec.count};
  if (spec.rank != spec.root) {
    writer.send(spec.root, mine);
    return;
  }
  const Blocks blocks(spec);
  for (int s = 1; s < spec.size; ++s) {
    const int from = wrap(spec.root + s, spec.size);
    writer.recv(from, blocks.at(Buffer::Output, from));
  }
  writer.copy(blocks.at(Buffer::Output, spec.root), mine);
}

}  // namespace mpigdr::collectives
