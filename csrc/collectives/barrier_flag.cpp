// Barrier inside a node: one flag per rank, read by all.
//   T = 1 flag
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void barrier_flag(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) { meet(writer, spec); }

}  // namespace mpi_gdr::collectives
