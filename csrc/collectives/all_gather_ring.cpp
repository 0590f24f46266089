// All-gather around a ring (Thakur et al., see build.hpp); lanes keep several messages in flight.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void all_gather_ring(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  if (blocks.some_empty()) writer.one_way();
  const Slice input{Buffer::Input, 0, blocks.count(spec.rank)};
  const Pipeline pipeline(blocks.smallest(), spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const auto part = [&](int owner) {
      return pipeline.lane_slice(blocks.at(Buffer::Output, wrap(owner, spec.size)), lane);
    };
    const Slice mine = pipeline.lane_slice(input, lane);
    for (int s = 0; s < spec.size - 1; ++s) {
      writer.round();
      writer.recv(wrap(spec.rank - 1, spec.size), part(spec.rank - s - 1));
      // The first message is sent from Input: it need not wait for the copy.
      writer.send(wrap(spec.rank + 1, spec.size), s == 0 ? mine : part(spec.rank - s));
      if (s == 0) writer.copy(part(spec.rank), mine);
    }
  }
}

}  // namespace mpi_gdr::collectives
