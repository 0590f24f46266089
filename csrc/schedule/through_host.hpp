// Schedules for device memory with an MPI that takes no device pointers.
#pragma once

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Returns the schedule with messages through bounce memory: per lane, the most that a round sends and twice
// the most that a round receives. Messages are unchanged, so each rank may choose by itself. Data that the
// next round forwards is sent from bounce memory while it is copied to its destination.
SchedulePtr through_host(const Schedule& schedule);

}  // namespace mpi_gdr
