// Schedules through Staging whose slices have places, where the buffers of some ranks are reached in place:
// no copy into Staging of what the others can read, none out of it of what they can write.
//
//   Copy into a placed slice       not made by a rank whose Input the others reach
//   placed slice of rank r as a    read from r's Input instead, if that is reached
//   source
//   Reduce into a slice that is    written to the Outputs of all ranks that are reached, at that place, and
//   placed in Output               to Staging if there are others
//   Copy of such a slice           not made by a rank whose Output the others reach
//
// Which ranks' are reached may differ from call to call and from rank to rank, and is known to a device that
// runs the schedule only when it meets the others (execution/device/peer_execution.hpp). So the schedule is
// the same.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace mpigdr {

// By rank: whether the others reach its Input, its Output.
struct Reached {
  std::vector<bool> input, output;
};

// What rank `rank` then does, as a schedule without places: for the checker.
SchedulePtr in_place(const Schedule& schedule, int rank, const Reached& reached);

}  // namespace mpigdr
