// Reduce-scatter by pairwise exchange: every rank gets its block from every other rank and folds all of them
// at once.
//   T = (p-1) (alpha + n/p beta) + (p-1)/p n gamma, n = the whole input; lanes overlap gamma with beta
//   steps p-1, bytes sent per rank (p-1)/p n, reductions (p-1)/p n in one pass; scratch (p-1)/p n
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 2005.
//
// The fold is in rank order and one Reduce: 16-bit floats are rounded once, however many ranks there are.
#include "collectives/build.hpp"

namespace mpigdr::collectives {

void reduce_scatter_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const int p = spec.size, rank = spec.rank;
  const Blocks blocks(spec);
  if (blocks.some_empty()) writer.one_way();
  const Slice result{Buffer::Output, 0, blocks.count(rank)};
  const Slice arrived = writer.scratch(result.count * static_cast<std::uint64_t>(p - 1));
  const Contribution contribution(writer, spec);
  const Pipeline pipeline(blocks.smallest(), spec, tuning);

  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const auto input = [&](int block) { return pipeline.lane_slice(blocks.at(Buffer::Input, block), lane); };
    const auto own = [&](int block) { return contribution.at(input(block)); };
    contribution.scale(p, input);
    const auto place = [&](int source) {
      const auto slot = static_cast<std::uint64_t>(source < rank ? source : source - 1);
      return pipeline.lane_slice({Buffer::Scratch, arrived.offset + slot * result.count, result.count}, lane);
    };
    for (int s = 1; s < p; ++s) {
      const int to = wrap(rank + s, p), from = wrap(rank - s, p);
      writer.round();
      writer.recv(from, place(from));
      writer.send(to, own(to));
    }
    std::vector<Slice> sources;
    for (int source = 0; source < p; ++source) sources.push_back(source == rank ? own(rank) : place(source));
    writer.round();
    writer.reduce(pipeline.lane_slice(result, lane), sources, final_scale(spec.op));
  }
}

}  // namespace mpigdr::collectives
