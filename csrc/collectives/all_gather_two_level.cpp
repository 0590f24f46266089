// All-gather over N nodes of m ranks: every rank exchanges its block with its counterparts on the other
// nodes, and what comes from there is handed on inside the node while the next block travels.
//   T = N (alpha + max(n/p beta, (m-1)/p n beta')), n = all blocks together; beta' inside the node
//   steps N, bytes sent per rank (N-1)/p n between the nodes and (m-1)/m n inside, reductions 0
// Source: two_level.hpp.
#include "collectives/two_level.hpp"

namespace mpigdr::collectives {

void all_gather_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const TwoLevel at(spec);
  const Blocks blocks(spec);
  // Then a rank may give to one that gives it nothing.
  if (blocks.some_empty() || !at.topology->even()) writer.one_way();
  const auto place = static_cast<std::size_t>(at.place);
  const Pipeline pipeline(blocks.smallest(), spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const auto part = [&](int owner) { return pipeline.lane_slice(blocks.at(Buffer::Output, owner), lane); };
    const Slice mine = pipeline.lane_slice({Buffer::Input, 0, blocks.count(spec.rank)}, lane);
    for (int s = 1; s <= at.nodes; ++s) {
      writer.round();
      if (s < at.nodes) {
        for (const int origin : at.served(wrap(at.node - s, at.nodes), place))
          writer.recv(origin, part(origin));
        writer.send(at.counterpart(wrap(at.node + s, at.nodes), at.place), mine);
      }
      const int v = wrap(at.node - s + 1, at.nodes);  // what came in the step before
      for (std::size_t k = 0; k < at.local.size(); ++k) {
        const int neighbour = at.local[k];
        if (k == place) continue;
        for (const int origin : at.served(v, k)) writer.recv(neighbour, part(origin));
        // The first leaves from Input, so that it need not wait for the copy.
        for (const int origin : at.served(v, place)) writer.send(neighbour, s == 1 ? mine : part(origin));
      }
      if (s == 1) writer.copy(part(spec.rank), mine);
    }
  }
}

}  // namespace mpigdr::collectives
