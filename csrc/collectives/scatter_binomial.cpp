// Broadcast, gather and scatter along a binomial tree (Thakur et al., see build.hpp). The blocks of a subtree
// travel as one message; scratch up to n/2, none on the root. A subtree that wraps around after rank p-1 is
// two messages at the root, because its blocks are not contiguous there.
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

void scatter_binomial(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  writer.lane();
  const BinomialTree tree(spec);
  const Slice mine{Buffer::Output, 0, spec.count};
  writer.round();
  if (tree.relative == 0) {
    const Blocks blocks(spec);
    for (const BinomialTree::Child& child : std::views::reverse(tree.children)) {  // deepest subtree first
      writer.send(child.rank, blocks.run(Buffer::Input, child.rank, child.until_end));
      writer.send(child.rank, blocks.run(Buffer::Input, 0, child.blocks - child.until_end));
    }
    writer.copy(mine, blocks.at(Buffer::Input, spec.root));
    return;
  }
  const Slice collected = tree.children.empty() ? mine : writer.scratch(tree.blocks * spec.count);
  const int until_end = tree.parent == spec.root ? tree.until_end : tree.blocks;
  writer.recv(tree.parent, tree.part(collected, 0, until_end));
  writer.recv(tree.parent, tree.part(collected, until_end, tree.blocks - until_end));
  if (tree.children.empty()) return;
  writer.round();
  for (const BinomialTree::Child& child : std::views::reverse(tree.children))
    writer.send(child.rank, tree.part(collected, child.first, child.blocks));
  writer.copy(mine, tree.part(collected, 0, 1));
}

}  // namespace mpi_gdr::collectives
