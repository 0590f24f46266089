// Inside a node: direct where all that is to be touched is in group memory, through Staging otherwise. Which
// of the two, the ranks tell each other when they begin (Schedule::staged): one flag more than either.
#pragma once

#include "collectives/build.hpp"

namespace mpigdr::collectives {

// The first of the two, which names the other. It is returned as it is if it touches nobody's Input or
// Output.
SchedulePtr join(const SchedulePtr& direct, const SchedulePtr& staged);

template <Builder kDirect, Builder kStaged>
SchedulePtr adaptive(const CollectiveSpec& spec, const Tuning& tuning) {
  return join(kDirect(spec, tuning), kStaged(spec, tuning));
}

}  // namespace mpigdr::collectives
