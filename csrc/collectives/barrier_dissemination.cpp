// Barrier by dissemination: in step k every rank tells rank + 2^k that it, and all it has heard of, has
// arrived.
//   T = ceil(lg p) alpha
// Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", IJPP 1988.
//
// A message of a barrier carries one element of scratch whose value nobody looks at: a schedule has no empty
// messages, and so no executor needs a rule for them.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void barrier_dissemination(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.lane();
  const Slice token = writer.scratch(1), incoming = writer.scratch(1);
  for (int distance = 1; distance < spec.size; distance *= 2) {
    writer.round();
    writer.recv(wrap(spec.rank - distance, spec.size), incoming);
    writer.send(wrap(spec.rank + distance, spec.size), token);
  }
}

void barrier_flag(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) { meet(writer, spec); }

}  // namespace mpi_gdr::collectives
