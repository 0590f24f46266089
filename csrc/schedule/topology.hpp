// Where the ranks of a group are: which of them share a node. Equal on all ranks; immutable, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace mpigdr {

class Topology {
 public:
  // node_of_rank[r]: any numbers, equal for ranks of one node. At least one rank.
  explicit Topology(const std::vector<int>& node_of_rank);

  int size() const { return static_cast<int>(node_.size()); }
  // Nodes are numbered from 0 in the order of their lowest ranks.
  int nodes() const { return static_cast<int>(members_.size()); }
  int node(int rank) const { return node_[static_cast<std::size_t>(rank)]; }
  // The ranks of a node, ascending, and where a rank stands among those of its own.
  const std::vector<int>& members(int node) const { return members_[static_cast<std::size_t>(node)]; }
  int place(int rank) const { return place_[static_cast<std::size_t>(rank)]; }
  // Of the node with the fewest ranks.
  int fewest() const { return fewest_; }
  // All nodes have as many ranks.
  bool even() const { return fewest_ * nodes() == size(); }
  // Both kinds of neighbours exist: on the same node and on others.
  bool two_level() const { return nodes() > 1 && size() > nodes(); }
  // Of no other Topology of this process.
  std::uint64_t id() const { return id_; }

 private:
  std::vector<int> node_, place_;
  std::vector<std::vector<int>> members_;
  int fewest_ = 0;
  std::uint64_t id_;
};

}  // namespace mpigdr
