// All-reduce as a ring reduce-scatter and a ring all-gather; lanes and chunks hide the reductions. Block b is
// folded along the ranks b+1, b+2, ..., b, and then copied: one expression on all ranks.
// Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void all_reduce_ring(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const int p = spec.size, next = wrap(spec.rank + 1, p), previous = wrap(spec.rank - 1, p);
  const Blocks blocks(spec.count, p);
  const Pipeline pipeline(blocks.smallest(), spec, tuning);
  const Contribution contribution(writer, spec);
  const std::uint64_t chunks = pipeline.chunks;
  const auto scatter_steps = static_cast<std::uint64_t>(p - 1);

  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const auto chunk = [&](Buffer buffer, int block, std::uint64_t i) {
      return pipeline.chunk(blocks.at(buffer, wrap(block, p)), lane, i);
    };
    const auto own = [&](int block, std::uint64_t i) {
      return contribution.at(chunk(Buffer::Input, block, i));
    };
    const auto output = [&](int block, std::uint64_t i) { return chunk(Buffer::Output, block, i); };
    contribution.scale(p, [&](int b) { return pipeline.lane_slice(blocks.at(Buffer::Input, b), lane); });
    const Slots incoming(writer, 2, pipeline.largest_chunk(blocks.largest()));

    // Message k of the lane, chunk i of step s, is reduced while message k + 1 is in flight.
    const auto reduce = [&](std::uint64_t k) {
      const std::uint64_t s = k / chunks, i = k % chunks;
      if (s >= scatter_steps) return;
      const int block = spec.rank - static_cast<int>(s) - 2;
      const Slice dst = output(block, i);
      writer.reduce(dst, {incoming.at(k, dst.count), own(block, i)},
                    s + 1 == scatter_steps ? final_scale(spec.op) : Scale::None);
    };
    for (std::uint64_t k = 0; k < 2 * scatter_steps * chunks; ++k) {
      const std::uint64_t s = k / chunks, i = k % chunks;
      const int step = static_cast<int>(s);
      writer.round();
      if (s < scatter_steps) {
        const int block = spec.rank - step - 1;
        writer.recv(previous, incoming.at(k, output(block - 1, i).count));
        writer.send(next, s == 0 ? own(block, i) : output(block, i));
      } else {
        const int t = step - (p - 1);
        writer.recv(previous, output(spec.rank - t - 1, i));
        writer.send(next, output(spec.rank - t, i));
      }
      if (chunks == 1) {  // the next message sends what this one brings: nothing to overlap in the lane
        writer.round();
        reduce(k);
      } else if (k > 0) {
        reduce(k - 1);
      }
    }
  }
}

}  // namespace mpi_gdr::collectives
