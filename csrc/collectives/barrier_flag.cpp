// Barrier inside a node: one flag per rank, read by all.
//   T = 1 flag
#include "collectives/shared.hpp"

namespace mpigdr::collectives {

SchedulePtr barrier_flag(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  ScheduleWriter writer("flag");
  if (spec.size > 1) meet(writer, spec);
  return writer.finish();
}

}  // namespace mpigdr::collectives
