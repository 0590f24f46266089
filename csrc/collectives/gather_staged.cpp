// Gather inside a node through shared memory.
//   T = 1 flag + n/p copied in by each rank, n copied out by the root, per chunk; the two overlap from chunk
//   to
//       chunk
// The others wait for the root only before they overwrite what it has read.
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void gather_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Slice own{Buffer::Input, 0, spec.count};
  const StagedChunks chunks(writer, spec.count, 1, spec, tuning);
  if (spec.rank == spec.root) writer.copy({Buffer::Output, block_offset(spec, spec.rank), spec.count}, own);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice chunk = chunks.chunk(own, i), room = chunks.room(i, 0, chunk.count);
    if (spec.rank == spec.root) {
      meet_root(writer, spec, Way::ToRoot);
      for (int k = 1; k < spec.size; ++k) {
        const int r = wrap(spec.rank + k, spec.size);
        writer.copy({Buffer::Output, block_offset(spec, r) + chunk.offset, chunk.count}, of(room, r));
      }
      if (i + 2 < chunks.number()) meet_root(writer, spec, Way::FromRoot);
    } else {
      if (i >= 2) meet_root(writer, spec, Way::FromRoot);
      writer.copy(room, chunk);
      meet_root(writer, spec, Way::ToRoot);
    }
  }
}

}  // namespace mpi_gdr::collectives
