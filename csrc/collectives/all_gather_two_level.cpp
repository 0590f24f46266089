// All-gather over N nodes of m ranks: every rank exchanges its block with its counterparts on the other
// nodes, and what comes from there is handed on inside the node while the next block travels.
//   T = N (alpha + max(n/p beta, (m-1)/p n beta')), n = all blocks together; beta' inside the node
//   steps N, bytes sent per rank (N-1)/p n between the nodes and (m-1)/m n inside, reductions 0
// Source: two_level.hpp.
#include "collectives/two_level.hpp"

namespace mpigdr::collectives {

SchedulePtr all_gather_two_level(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("two_level", spec);
  const TwoLevel at(spec);
  ScheduleWriter writer("two_level");
  const Blocks blocks(spec);
  // Then a rank may give to one that gives it nothing.
  if (blocks.some_empty() || !at.topology->even()) writer.one_way();
  // The ranks of node v whose blocks come to the rank at `k` of this node.
  const auto received = [&](int v, int k) {
    std::vector<int> found;
    for (std::size_t i = static_cast<std::size_t>(k); i < at.members(v).size(); i += at.local.size())
      found.push_back(at.members(v)[i]);
    return found;
  };
  const Pipeline pipeline(blocks.smallest(), spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const auto part = [&](int owner) { return pipeline.lane_slice(blocks.at(Buffer::Output, owner), lane); };
    const Slice mine = pipeline.lane_slice({Buffer::Input, 0, blocks.count(spec.rank)}, lane);
    for (int s = 1; s <= at.nodes; ++s) {
      writer.round();
      if (s < at.nodes) {
        for (const int origin : received(wrap(at.node - s, at.nodes), at.place))
          writer.recv(origin, part(origin));
        writer.send(at.counterpart(wrap(at.node + s, at.nodes), at.place), mine);
      }
      const int v = wrap(at.node - s + 1, at.nodes);  // what came in the step before
      for (int k = 0; k < at.ranks; ++k) {
        const int neighbour = at.local[static_cast<std::size_t>(k)];
        if (k == at.place) continue;
        for (const int origin : received(v, k)) writer.recv(neighbour, part(origin));
        // The first leaves from Input, so that it need not wait for the copy.
        for (const int origin : received(v, at.place)) writer.send(neighbour, s == 1 ? mine : part(origin));
      }
      if (s == 1) writer.copy(part(spec.rank), mine);
    }
  }
  return writer.finish();
}

}  // namespace mpigdr::collectives
