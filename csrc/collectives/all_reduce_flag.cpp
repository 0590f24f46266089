// All-reduce inside a node, for what is tiny: every rank puts its input into shared memory, raises a flag,
// and reduces all of them.
//   T = 1 flag + n copied + pn read, per chunk
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

void all_reduce_flag(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  reduce_whole(writer, spec, tuning);
}

}  // namespace mpigdr::collectives
