// Schedules for a device's memory with an MPI that takes no device pointers.
#pragma once

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// The same schedule with every message by way of bounce memory: per lane what the largest round sends, and
// twice what it receives. Messages stay as they are, so that each rank may choose for itself. What is
// received and sent on at once (ring all_gather, chain broadcast) is sent from where it arrived, and copied
// meanwhile.
SchedulePtr through_host(const Schedule& schedule);

}  // namespace mpi_gdr
