// Broadcast along a binomial tree (Thakur et al., see build.hpp).
#include <ranges>

#include "collectives/binomial.hpp"

namespace mpi_gdr::collectives {

void broadcast_binomial(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  writer.lane();
  const Slice data{Buffer::Output, 0, spec.count};
  const BinomialTree tree(spec);
  if (tree.relative != 0) {
    writer.round();
    writer.recv(tree.parent, data);
  }
  writer.round();
  for (const BinomialTree::Child& child : std::views::reverse(tree.children))  // the deepest subtree first
    writer.send(child.rank, data);
}

}  // namespace mpi_gdr::collectives
