// Gather along a binomial tree: a rank collects the blocks of its subtree and passes them on as one message.
//   T = ceil(lg p) alpha + (p-1)/p n beta, n = all blocks together
//   steps ceil(lg p), messages to the root ceil(lg p) (one more if the root is not rank 0), bytes sent per
//   rank up to n/2, reductions 0; scratch up to n/2, none on the root
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 2005.
//
// Subtrees are stretches of ranks as seen from the root. The one that passes rank p-1 goes to the root in two
// messages, so that every block arrives in its place.
#include "collectives/binomial.hpp"

namespace mpi_gdr::collectives {

void gather_binomial(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  writer.lane();
  const BinomialTree tree(spec);
  const Slice mine{Buffer::Input, 0, spec.count};
  writer.round();
  if (tree.relative == 0) {
    const Blocks blocks(spec);
    for (const BinomialTree::Child& child : tree.children) {
      writer.recv(child.rank, blocks.run(Buffer::Output, child.rank, child.until_end));
      writer.recv(child.rank, blocks.run(Buffer::Output, 0, child.blocks - child.until_end));
    }
    writer.copy(blocks.at(Buffer::Output, spec.root), mine);
    return;
  }
  Slice collected = mine;
  if (!tree.children.empty()) {
    collected = writer.scratch(tree.blocks * spec.count);
    for (const BinomialTree::Child& child : tree.children)
      writer.recv(child.rank, tree.part(collected, child.first, child.blocks));
    writer.copy(tree.part(collected, 0, 1), mine);
    writer.round();
  }
  const int until_end = tree.parent == spec.root ? tree.until_end : tree.blocks;
  writer.send(tree.parent, tree.part(collected, 0, until_end));
  writer.send(tree.parent, tree.part(collected, until_end, tree.blocks - until_end));
}

}  // namespace mpi_gdr::collectives
