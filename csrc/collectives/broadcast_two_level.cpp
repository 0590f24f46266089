// Broadcast over N nodes of m ranks, in k chunks: along a chain of one rank of each node, and from there
// down a binomial tree of the node's ranks. Every rank passes chunk i on while chunk i + 1 arrives.
//   T = (N - 2 + k) (alpha + n/k (beta + lg m beta')) + lg m (alpha' + n/k beta'): a chunk leaves the first
//   rank of
//       a node 1 + lg m times, so that the table does not take it before somebody has measured it
//   steps N - 2 + k + ceil(lg m), bytes sent per rank at most (1 + lg m) n, reductions 0
// Source: two_level.hpp; the chain as in broadcast_chain.cpp.
#include "collectives/two_level.hpp"

namespace mpigdr::collectives {

void broadcast_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const TwoLevel at(spec);
  writer.one_way();
  const int first_node = at.topology->node(spec.root), behind = wrap(at.node - first_node, at.nodes);
  const auto leader_of = [&](int v) { return v == first_node ? spec.root : at.members(v)[0]; };
  const int first_place = at.topology->place(leader_of(at.node));
  // Counted from the leader: the subtree of rank q holds [q, q + lowest set bit of q).
  const int q = wrap(at.place - first_place, at.ranks);
  const auto neighbour = [&](int number) {
    return at.local[static_cast<std::size_t>(wrap(number + first_place, at.ranks))];
  };
  int parent = -1;
  std::vector<int> children;  // the one that has most to do first
  if (q == 0 && behind > 0) parent = leader_of(wrap(at.node - 1, at.nodes));
  if (q == 0 && behind < at.nodes - 1) children.push_back(leader_of(wrap(at.node + 1, at.nodes)));
  if (q > 0) parent = neighbour(q & (q - 1));
  int reach = 1;
  while (reach < at.ranks && (q & reach) == 0) reach *= 2;
  for (int step = reach / 2; step > 0; step /= 2)
    if (q + step < at.ranks) children.push_back(neighbour(q + step));

  const Slice data{Buffer::Output, 0, spec.count};
  const Pipeline pipeline(spec.count, spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    for (std::uint64_t i = 0; i <= pipeline.chunks; ++i) {
      writer.round();
      if (parent >= 0 && i < pipeline.chunks) writer.recv(parent, pipeline.chunk(data, lane, i));
      if (i == 0) continue;
      for (const int child : children) writer.send(child, pipeline.chunk(data, lane, i - 1));
    }
  }
}

}  // namespace mpigdr::collectives
