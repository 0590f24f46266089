// Broadcast along a chain of ranks: a rank sends chunk i on while chunk i + 1 arrives.
// Source: Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations", Cluster Comp. 2007.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void broadcast_chain(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  writer.one_way();
  const Slice data{Buffer::Output, 0, spec.count};
  const int relative = wrap(spec.rank - spec.root, spec.size);
  const bool first = relative == 0, last = relative == spec.size - 1;
  const Pipeline pipeline(spec.count, spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    for (std::uint64_t i = 0; i <= pipeline.chunks; ++i) {
      writer.round();
      if (!first && i < pipeline.chunks)
        writer.recv(wrap(spec.rank - 1, spec.size), pipeline.chunk(data, lane, i));
      if (!last && i > 0) writer.send(wrap(spec.rank + 1, spec.size), pipeline.chunk(data, lane, i - 1));
    }
  }
}

}  // namespace mpi_gdr::collectives
