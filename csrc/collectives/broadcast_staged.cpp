// Broadcast inside a node through shared memory.
//   T = 1 flag + n copied in by the root, n copied out, per chunk; the two overlap from chunk to chunk
// Only the root waits for the others, and only for those that read what it is about to overwrite.
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void broadcast_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const StagedChunks chunks(writer, spec.count, 1, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice chunk = chunks.chunk({Buffer::Output, 0, spec.count}, i);
    const Slice room = chunks.room(i, 0, chunk.count);
    writer.round();
    if (spec.rank == spec.root) {
      if (i >= 2) meet_root(writer, spec, Way::ToRoot);
      writer.copy(room, chunk);
      meet_root(writer, spec, Way::FromRoot);
    } else {
      meet_root(writer, spec, Way::FromRoot);
      writer.copy(chunk, of(room, spec.root));
      if (i + 2 < chunks.number()) meet_root(writer, spec, Way::ToRoot);
    }
  }
}

}  // namespace mpi_gdr::collectives
