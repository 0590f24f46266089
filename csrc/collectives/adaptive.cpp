#include "collectives/adaptive.hpp"

namespace mpigdr::collectives {

SchedulePtr join(const SchedulePtr& direct, const SchedulePtr& staged) {
  if (direct->algorithm != "direct" || !direct->shared) return direct;  // of one rank, or staged itself
  auto both = std::make_shared<Schedule>(*direct);
  both->algorithm = "adaptive";
  both->staged = staged;
  // What the engine must know before it is decided.
  both->one_way = both->one_way || staged->one_way;
  return both;
}

}  // namespace mpigdr::collectives
