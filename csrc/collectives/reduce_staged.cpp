// Reduce inside a node through shared memory: copy in, each rank reduces its slice, the root copies out.
//   T = 1 flag + (p-1)/p n copied in + n reduced, n copied out by the root, per chunk; two flags more at the
//       end
//   of two ranks: 1 flag + n copied in while the root reads 2n, per chunk
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void reduce_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  reduce_in_staging(writer, spec, tuning);
}

}  // namespace mpigdr::collectives
