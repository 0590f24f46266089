// Reduce-scatter around a ring: block b is folded along the ranks b+1, b+2, ..., b.
// Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void reduce_scatter_ring(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const int p = spec.size, next = wrap(spec.rank + 1, p), previous = wrap(spec.rank - 1, p);
  const Blocks blocks(spec);
  if (blocks.some_empty()) writer.one_way();
  const Slice result{Buffer::Output, 0, blocks.count(spec.rank)};
  const Pipeline pipeline(blocks.smallest(), spec, tuning);
  const std::uint64_t chunks = pipeline.chunks;
  const auto steps = static_cast<std::uint64_t>(p - 1);
  const Contribution contribution(writer, spec);

  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    contribution.scale(p, [&](int b) { return pipeline.lane_slice(blocks.at(Buffer::Input, b), lane); });
    const auto own = [&](int block) { return contribution.at(blocks.at(Buffer::Input, wrap(block, p))); };
    // Message k arrives in round k, is reduced in round k + 1 and sent in round k + chunks: chunks + 1 slots.
    const Slots partial(writer, chunks + 1, pipeline.largest_chunk(blocks.largest()));
    const auto reduce = [&](std::uint64_t k) {
      const std::uint64_t s = k / chunks, i = k % chunks;
      const Slice mine = pipeline.chunk(own(spec.rank - static_cast<int>(s) - 2), lane, i);
      const Slice arrived = partial.at(k, mine.count);
      if (s + 1 == steps)
        writer.reduce(pipeline.chunk(result, lane, i), {arrived, mine}, final_scale(spec.op));
      else
        writer.reduce(arrived, {arrived, mine});
    };
    for (std::uint64_t k = 0; k < steps * chunks; ++k) {
      const std::uint64_t s = k / chunks, i = k % chunks;
      const int step = static_cast<int>(s);
      const Slice arriving = pipeline.chunk(own(spec.rank - step - 2), lane, i);
      const Slice leaving = pipeline.chunk(own(spec.rank - step - 1), lane, i);
      writer.round();
      writer.recv(previous, partial.at(k, arriving.count));
      writer.send(next, s == 0 ? leaving : partial.at(k - chunks, leaving.count));
      if (chunks == 1) {
        writer.round();
        reduce(k);
      } else if (k > 0) {
        reduce(k - 1);
      }
    }
    if (chunks > 1) {
      writer.round();
      reduce(steps * chunks - 1);
    }
  }
}

}  // namespace mpi_gdr::collectives
