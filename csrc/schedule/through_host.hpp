// Schedules for memory that the transport does not reach: that of a device, with an MPI that takes no device
// pointers.
#pragma once

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// The same schedule, with every message by way of bounce memory: what is sent is copied there first, what
// arrives is copied on from there. Messages stay as they are, so that each rank may choose for itself. Copies
// of one lane run beside messages of others; what is received and sent on at once (ring all_gather, chain
// broadcast) is sent on from where it arrived, and copied meanwhile.
// Bounce memory: per lane what the round with the most messages sends, and twice what it receives.
SchedulePtr through_host(const Schedule& schedule);

}  // namespace mpi_gdr
