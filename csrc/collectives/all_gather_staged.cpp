// All-gather inside a node through shared memory.
//   T = 1 flag + n/p copied in + n copied out, per chunk
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr all_gather_staged(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("staged", spec);
  ScheduleWriter writer("staged");
  const Blocks blocks(spec);
  const StagedChunks chunks(writer, blocks.largest(), 1, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice own = chunks.chunk({Buffer::Input, 0, blocks.count(spec.rank)}, i);
    writer.round();
    writer.copy(chunks.room(i, 0, own.count), own);
    meet(writer, spec);
    for (int k = 0; k < spec.size; ++k) {
      const int r = wrap(spec.rank + k, spec.size);
      const Slice dst = chunks.chunk(blocks.at(Buffer::Output, r), i);
      writer.copy(dst, r == spec.rank ? own : of(chunks.room(i, 0, dst.count), r));
    }
  }
  return writer.finish();
}

}  // namespace mpigdr::collectives
