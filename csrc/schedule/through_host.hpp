// Schedules for device memory with an MPI that takes no device pointers.
#pragma once

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// The same schedule with messages through bounce memory: per lane, the largest round's sends, and twice its
// receives. Messages are unchanged, so each rank may choose by itself. Data that is forwarded at once is sent
// from bounce memory while it is copied.
SchedulePtr through_host(const Schedule& schedule);

}  // namespace mpi_gdr
