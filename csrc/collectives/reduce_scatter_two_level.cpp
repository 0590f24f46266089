// Reduce-scatter over N nodes of m ranks: for one node after the other, each rank of the own one folds what
// its node has for one rank of that one, and sends it there; each folds what came from the nodes.
//   T = N (2 alpha + (m-1)/p n beta' + n/p beta) + (p-1)/p n gamma, n = the whole input, beta' inside the
//       node; what is folded for one node travels while the next is dealt with, and lanes overlap all three
//   steps N + 1, bytes sent per rank (m-1)/m n inside and (N-1)/p n between the nodes, reductions (p-1)/p n
//   in two passes; scratch (m-1 + 1 + N) n/p
// Source: two_level.hpp; pairwise exchange between the nodes as in reduce_scatter_pairwise.cpp.
//
// Each fold is one Reduce, first in the order of a node's ranks, then of the nodes.
#include "collectives/two_level.hpp"

namespace mpigdr::collectives {
void reduce_scatter_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const TwoLevel at(spec);
  const Blocks blocks(spec);
  // Then a rank may give to one that gives it nothing.
  if (blocks.some_empty() || !at.topology->even()) writer.one_way();
  const auto ranks = static_cast<std::size_t>(at.ranks), place = static_cast<std::size_t>(at.place);
  std::size_t most = 0;
  for (int v = 0; v < at.nodes; ++v) most = std::max(most, at.served(v, place).size());

  const Contribution contribution(writer, spec);
  const std::uint64_t result = blocks.count(spec.rank);
  const Pipeline pipeline(blocks.smallest(), spec, tuning);

  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const auto part = [&](const Slice& block) { return pipeline.lane_slice(block, lane); };
    const auto length = [&](int rank) { return part({Buffer::Output, 0, blocks.count(rank)}).count; };
    const std::uint64_t longest = largest_piece(blocks.largest(), static_cast<std::uint64_t>(pipeline.lanes));
    const Slots arrived(writer, (ranks - 1) * most, longest);  // from this node
    const Slots folded(writer, most, longest);                 // for another one
    // Of the own block, by node.
    const Slots partial(writer, static_cast<std::uint64_t>(at.nodes), length(spec.rank));
    const auto input = [&](int rank) { return part(blocks.at(Buffer::Input, rank)); };
    const auto own = [&](int rank) { return contribution.at(input(rank)); };
    contribution.scale(spec.size, input);
    // Number i of the blocks that this rank serves, from the rank at `k` of this node.
    const auto from = [&](std::size_t k, std::size_t i, int rank) {
      if (k == place) return own(rank);
      return arrived.at((k < place ? k : k - 1) * most + i, length(rank));
    };
    const auto part_of_node = [&](int v) {
      return partial.at(static_cast<std::uint64_t>(v), length(spec.rank));
    };
    // The sum of this node for `rank`, number i of those served: alone on its node, a rank has it already.
    const auto sum = [&](std::size_t i, int rank) {
      if (ranks == 1) return own(rank);
      return rank == spec.rank ? part_of_node(at.node) : folded.at(i, length(rank));
    };

    // Other nodes first: the own one has no way to go. Step s ends while step s + 1 begins.
    for (int s = 0; s <= at.nodes; ++s) {
      writer.round();
      if (s < at.nodes) {
        const int v = wrap(at.node + 1 + s, at.nodes);
        for (std::size_t k = 0; k < ranks; ++k) {
          if (k == place) continue;
          for (const int rank : at.served(v, k)) writer.send(at.local[k], own(rank));
          const std::vector<int> mine = at.served(v, place);
          for (std::size_t i = 0; i < mine.size(); ++i) writer.recv(at.local[k], from(k, i, mine[i]));
        }
      }
      if (s >= 1 && s < at.nodes) {
        const int to = wrap(at.node + s, at.nodes), origin = wrap(at.node - s, at.nodes);
        writer.recv(at.counterpart(origin, at.place), part_of_node(origin));
        const std::vector<int> theirs = at.served(to, place);
        for (std::size_t i = 0; i < theirs.size(); ++i) writer.send(theirs[i], sum(i, theirs[i]));
      }
      if (s == at.nodes || ranks == 1) continue;
      writer.round();
      const std::vector<int> mine = at.served(wrap(at.node + 1 + s, at.nodes), place);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        std::vector<Slice> sources;
        for (std::size_t k = 0; k < ranks; ++k) sources.push_back(from(k, i, mine[i]));
        const bool whole = at.nodes == 1;
        writer.reduce(whole ? part({Buffer::Output, 0, result}) : sum(i, mine[i]), sources,
                      whole ? final_scale(spec.op) : Scale::None);
      }
    }
    if (at.nodes == 1) continue;
    std::vector<Slice> sources;
    for (int v = 0; v < at.nodes; ++v) sources.push_back(v == at.node ? sum(0, spec.rank) : part_of_node(v));
    writer.round();
    writer.reduce(part({Buffer::Output, 0, result}), sources, final_scale(spec.op));
  }
}

}  // namespace mpigdr::collectives
