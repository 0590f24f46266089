// All-gather inside a node through shared memory.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void all_gather_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  const StagedChunks chunks(writer, blocks.largest(), 1, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice own = chunks.chunk({Buffer::Input, 0, blocks.count(spec.rank)}, i);
    writer.round();
    const auto room = [&](const Slice& block) {  // `block`: some rank's Input
      const Slice there = chunks.room(i, 0, block.count);
      return tuning.in_place ? writer.mirror(there, block) : there;
    };
    writer.copy(room(own), own);
    barrier(writer, spec);
    for (int k = 0; k < spec.size; ++k) {
      const int r = wrap(spec.rank + k, spec.size);
      const Slice dst = chunks.chunk(blocks.at(Buffer::Output, r), i);
      const Slice theirs = chunks.chunk({Buffer::Input, 0, blocks.count(r)}, i);
      writer.copy(dst, r == spec.rank ? own : of(room(theirs), r));
    }
  }
  if (tuning.in_place) barrier(writer, spec);
}

}  // namespace mpi_gdr::collectives
