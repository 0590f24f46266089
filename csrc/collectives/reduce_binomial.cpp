// Reduce along a binomial tree (Thakur et al., see build.hpp): a rank reduces chunk i while its children send
// chunk i + 1. It folds its own values and its children's, in the order of ranks as seen from the root, in
// ONE Reduce: 16-bit floats are rounded once a level. Only the root's Output is written.
#include "collectives/binomial.hpp"

namespace mpi_gdr::collectives {

void reduce_binomial(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  writer.one_way();
  const Slice input{Buffer::Input, 0, spec.count}, output{Buffer::Output, 0, spec.count};
  const bool is_root = spec.rank == spec.root, premul = spec.op == ReduceOp::PreMulSum;
  const BinomialTree tree(spec);
  const auto& children = tree.children;  // in rank order as seen from the root

  const Pipeline pipeline(spec.count, spec, tuning);
  const std::uint64_t most = pipeline.largest_chunk(spec.count);
  const bool partial = !is_root && (!children.empty() || premul);  // the parent gets other data than Input
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    // Two slots for each use: one is filled while the other is read.
    std::vector<Slots> incoming;
    for (std::size_t c = 0; c < children.size(); ++c) incoming.emplace_back(writer, 2, most);
    const Slots own(writer, premul && !children.empty() ? 2 : 0, most), result(writer, partial ? 2 : 0, most);

    const auto take = [&](std::uint64_t i) {
      const Slice mine = pipeline.chunk(input, lane, i);
      for (std::size_t c = 0; c < children.size(); ++c)
        writer.recv(children[c].rank, incoming[c].at(i, mine.count));
      if (premul && !children.empty()) writer.copy(own.at(i, mine.count), mine, Scale::PreMul);
    };
    const auto combine = [&](std::uint64_t i) {
      const Slice mine = pipeline.chunk(input, lane, i);
      if (children.empty()) {
        if (premul) writer.copy(result.at(i, mine.count), mine, Scale::PreMul);
        return;
      }
      std::vector<Slice> sources{premul ? own.at(i, mine.count) : mine};
      for (const Slots& slots : incoming) sources.push_back(slots.at(i, mine.count));
      if (is_root)
        writer.reduce(pipeline.chunk(output, lane, i), sources, final_scale(spec.op));
      else
        writer.reduce(result.at(i, mine.count), sources);
    };
    const auto pass_on = [&](std::uint64_t i) {
      const Slice mine = pipeline.chunk(input, lane, i);
      writer.send(tree.parent, partial ? result.at(i, mine.count) : mine);
    };
    for (std::uint64_t i = 0; i < pipeline.chunks + 2; ++i) {
      writer.round();
      if (i < pipeline.chunks) take(i);
      if (i >= 1 && i - 1 < pipeline.chunks) combine(i - 1);
      if (i >= 2 && !is_root) pass_on(i - 2);
    }
  }
}

}  // namespace mpi_gdr::collectives
