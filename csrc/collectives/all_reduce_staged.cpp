// All-reduce inside a node through shared memory: copy in, each rank reduces its slice, copy out.
//   T = 1 flag + (p-1)/p n copied in + n reduced + n copied out, per chunk; two flags more at the end
//   of two ranks: 1 flag + n copied in + 2n read, per chunk: less is written, and one piece fewer is copied
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void all_reduce_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  reduce_in_staging(writer, spec, tuning);
}

}  // namespace mpigdr::collectives
