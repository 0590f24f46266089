// Gather and scatter in one step: a message between the root and each rank, without intermediate copies.
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

}  // namespace mpi_gdr::collectives
