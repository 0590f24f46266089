// Inside a node: direct where all that is to be touched is in group memory, through Staging otherwise. Which
// of the two, the ranks tell each other when they begin (Schedule::staged): one flag more than either.
#include "collectives/shared.hpp"

namespace mpigdr::collectives {
namespace {

SchedulePtr adaptive(const SchedulePtr& direct, const CollectiveSpec& spec, const Tuning& tuning,
                     Builder staged) {
  if (direct->algorithm != "direct" || !direct->shared) return direct;  // of one rank, or staged itself
  auto both = std::make_shared<Schedule>(*direct);
  both->algorithm = "adaptive";
  both->staged = staged(spec, tuning);
  // What the engine must know before it is decided.
  both->one_way = both->one_way || both->staged->one_way;
  return both;
}

}  // namespace

SchedulePtr all_reduce_adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return adaptive(all_reduce_direct(spec, tuning), spec, tuning, all_reduce_staged);
}
SchedulePtr broadcast_adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return adaptive(broadcast_direct(spec, tuning), spec, tuning, broadcast_staged);
}
SchedulePtr reduce_adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return adaptive(reduce_direct(spec, tuning), spec, tuning, reduce_staged);
}
SchedulePtr all_gather_adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return adaptive(all_gather_direct(spec, tuning), spec, tuning, all_gather_staged);
}
SchedulePtr reduce_scatter_adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return adaptive(reduce_scatter_direct(spec, tuning), spec, tuning, reduce_scatter_staged);
}
SchedulePtr gather_adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return adaptive(gather_direct(spec, tuning), spec, tuning, gather_staged);
}
SchedulePtr scatter_adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return adaptive(scatter_direct(spec, tuning), spec, tuning, scatter_staged);
}

}  // namespace mpigdr::collectives
