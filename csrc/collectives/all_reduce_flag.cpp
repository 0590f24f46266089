// All-reduce inside a node, for what is tiny: every rank puts its input into shared memory, raises a flag,
// and reduces all of them.
//   T = 1 flag + n copied + pn read, per chunk
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr all_reduce_flag(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("flag", spec);
  ScheduleWriter writer("flag");
  reduce_whole(writer, spec, tuning);
  return writer.finish();
}

}  // namespace mpigdr::collectives
