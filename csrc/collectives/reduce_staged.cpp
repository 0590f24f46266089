// Reduce inside a node through shared memory: copy in, each rank reduces its slice, the root copies out.
//   T = 1 flag + (p-1)/p n copied in + n reduced, n copied out by the root, per chunk; two flags more at the
//       end
//   of two ranks: 1 flag + n copied in while the root reads 2n, per chunk
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr reduce_staged(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("staged", spec);
  ScheduleWriter writer("staged");
  reduce_in_staging(writer, spec, tuning);
  return writer.finish();
}

}  // namespace mpigdr::collectives
