// All-reduce inside a node, for what is tiny: every rank puts its input into shared memory, raises a flag,
// and reduces all of them.
//   T = 1 flag + n copied + pn read, per chunk
//   one fold over all ranks in rank order, rounded once, by every rank
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr all_reduce_flag(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("flag", spec);
  ScheduleWriter writer("flag");
  const StagedChunks chunks(writer, spec.count, 1, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice dst = chunks.chunk({Buffer::Output, 0, spec.count}, i);
    const Slice room = chunks.room(i, 0, dst.count);
    const Slice source = chunks.chunk({Buffer::Input, 0, spec.count}, i);
    writer.round();
    writer.copy(room, source, first_scale(spec.op));
    meet(writer, spec);
    std::vector<Slice> sources = of_all(room, spec.size);
    // Likelier in this core's cache, unless it has yet to be scaled.
    if (spec.op != ReduceOp::PreMulSum) sources[static_cast<std::size_t>(spec.rank)] = source;
    writer.reduce(dst, sources, final_scale(spec.op));
  }
  return writer.finish();
}

}  // namespace mpigdr::collectives
