// Reduce inside a node through shared memory: copy in, each rank reduces its slice, the root copies out.
//   T = 2 flags + n copied in + n reduced, n copied out by the root, per chunk
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr reduce_staged(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("staged", spec);
  ScheduleWriter writer("staged");
  const auto p = static_cast<std::uint64_t>(spec.size), rank = static_cast<std::uint64_t>(spec.rank);
  const StagedChunks chunks(writer, spec.count, 2, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice source = chunks.chunk({Buffer::Input, 0, spec.count}, i);
    const Slice in = chunks.room(i, 0, source.count), out = chunks.room(i, 1, source.count);
    writer.round();
    writer.copy(in, source, spec.op == ReduceOp::PreMulSum ? Scale::PreMul : Scale::None);
    meet(writer, spec);
    writer.reduce(piece(out, p, rank), of_all(piece(in, p, rank), spec.size), final_scale(spec.op));
    meet(writer, spec);
    if (spec.rank != spec.root) continue;
    const Slice dst = chunks.chunk({Buffer::Output, 0, spec.count}, i);
    for (std::uint64_t r = 0; r < p; ++r)
      writer.copy(piece(dst, p, r), of(piece(out, p, r), static_cast<int>(r)));
  }
  return writer.finish();
}

}  // namespace mpigdr::collectives
