// Barrier over N nodes of m ranks: the ranks of a node tell one of them, these N meet by dissemination, and
// each tells its node.
//   T = 2 (m-1) alpha' + ceil(lg N) alpha: not the table's choice, since m may be large
//   steps 2 + ceil(lg N), messages of one element, m - 1 of them to and from one rank; reductions 0
// Source: two_level.hpp; barrier_dissemination.cpp.
#include "collectives/two_level.hpp"

namespace mpigdr::collectives {

void barrier_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  const TwoLevel at(spec);
  writer.lane();
  const Slice token = writer.scratch(1);
  writer.round();
  if (at.place > 0) {
    const Slice incoming = writer.scratch(1);
    writer.send(at.local[0], token);
    writer.round();
    writer.recv(at.local[0], incoming);
    return;
  }
  const Slice incoming = writer.scratch(static_cast<std::uint64_t>(at.ranks));
  for (int k = 1; k < at.ranks; ++k)
    writer.recv(at.local[static_cast<std::size_t>(k)],
                {Buffer::Scratch, incoming.offset + static_cast<std::uint64_t>(k), 1});
  for (int distance = 1; distance < at.nodes; distance *= 2) {
    writer.round();
    writer.recv(at.members(wrap(at.node - distance, at.nodes))[0], {Buffer::Scratch, incoming.offset, 1});
    writer.send(at.members(wrap(at.node + distance, at.nodes))[0], token);
  }
  writer.round();
  for (int k = 1; k < at.ranks; ++k) writer.send(at.local[static_cast<std::size_t>(k)], token);
}

}  // namespace mpigdr::collectives
