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
  const StagedChunks chunks(writer, spec.count, 2, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice out = reduce_in_staging(writer, chunks, i, spec);
    if (spec.rank == spec.root) copy_out_of_staging(writer, chunks, i, out, spec);
  }
  return writer.finish();
}

}  // namespace mpigdr::collectives
