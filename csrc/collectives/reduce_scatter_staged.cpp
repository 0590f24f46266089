// Reduce-scatter inside a node through shared memory: copy in what the others need, reduce one's own block.
//   T = 1 flag + (p-1)n copied in + pn read, per chunk of n
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr reduce_scatter_staged(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("staged", spec);
  ScheduleWriter writer("staged");
  const Blocks blocks(spec);
  const StagedChunks chunks(writer, blocks.largest(), static_cast<std::uint64_t>(spec.size), spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    writer.round();
    const bool scales = spec.op == ReduceOp::PreMulSum;
    for (int r = 0; r < spec.size; ++r) {
      if (r == spec.rank && !scales) continue;  // taken from Input
      const Slice source = chunks.chunk(blocks.at(Buffer::Input, r), i);
      writer.copy(chunks.room(i, static_cast<std::uint64_t>(r), source.count), source, first_scale(spec.op));
    }
    meet(writer, spec);
    const Slice dst = chunks.chunk({Buffer::Output, 0, blocks.count(spec.rank)}, i);
    std::vector<Slice> sources =
        of_all(chunks.room(i, static_cast<std::uint64_t>(spec.rank), dst.count), spec.size);
    if (!scales)
      sources[static_cast<std::size_t>(spec.rank)] = chunks.chunk(blocks.at(Buffer::Input, spec.rank), i);
    writer.reduce(dst, sources, final_scale(spec.op));
  }
  // In place, Output is part of Input: nothing of it is read any more when the last chunk is in.
  return writer.finish();
}

}  // namespace mpigdr::collectives
