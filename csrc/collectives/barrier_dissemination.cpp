// Barrier by dissemination: in step k every rank notifies rank + 2^k, by one element of scratch that is never
// read, since a schedule has no empty messages.
// Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", IJPP 1988.
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

void barrier_flag(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  barrier(writer, spec);
}

}  // namespace mpi_gdr::collectives
