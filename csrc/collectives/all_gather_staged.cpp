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
  const auto cut = [&](const Slice& block, std::uint64_t i) {
    const Slice chunk = chunks.chunk({block.buffer, block.offset, blocks.largest()}, i);
    const std::uint64_t end = std::min(chunk.offset + chunk.count, block.offset + block.count);
    return Slice{block.buffer, chunk.offset, end - std::min(chunk.offset, end)};
  };
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice own = cut({Buffer::Input, 0, blocks.count(spec.rank)}, i);
    writer.round();
    writer.copy(chunks.room(i, 0, own.count), own);
    meet(writer, spec);
    for (int k = 0; k < spec.size; ++k) {
      const int r = wrap(spec.rank + k, spec.size);
      const Slice dst = cut(blocks.at(Buffer::Output, r), i);
      writer.copy(dst, r == spec.rank ? own : of(chunks.room(i, 0, dst.count), r));
    }
  }
  return writer.finish();
}

}  // namespace mpigdr::collectives
