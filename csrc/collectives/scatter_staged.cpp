// Scatter inside a node through shared memory.
//   T = 1 flag + n copied in by the root, n/p copied out by each rank, per chunk; the two overlap from chunk
//   to
//       chunk
// Only the root waits for the others, and only for those that read what it is about to overwrite.
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void scatter_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Slice own{Buffer::Output, 0, spec.count};
  const StagedChunks chunks(writer, spec.count, static_cast<std::uint64_t>(spec.size - 1), spec, tuning);
  // The root's part for the k-th rank behind it.
  const auto room = [&](std::uint64_t i, int k, std::uint64_t count) {
    return chunks.room(i, static_cast<std::uint64_t>(k - 1), count);
  };
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice chunk = chunks.chunk(own, i);
    if (spec.rank == spec.root) {
      if (i >= 2) meet_root(writer, spec, Way::ToRoot);
      for (int k = 1; k < spec.size; ++k) {
        const int r = wrap(spec.rank + k, spec.size);
        writer.copy(room(i, k, chunk.count),
                    {Buffer::Input, block_offset(spec, r) + chunk.offset, chunk.count});
      }
      meet_root(writer, spec, Way::FromRoot);
    } else {
      meet_root(writer, spec, Way::FromRoot);
      writer.copy(chunk, of(room(i, wrap(spec.rank - spec.root, spec.size), chunk.count), spec.root));
      if (i + 2 < chunks.number()) meet_root(writer, spec, Way::ToRoot);
    }
  }
  if (spec.rank == spec.root) writer.copy(own, {Buffer::Input, block_offset(spec, spec.rank), spec.count});
}

}  // namespace mpi_gdr::collectives
