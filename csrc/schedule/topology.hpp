// Which ranks of a group share a node. Equal on all ranks; immutable, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace mpi_gdr {

class Topology {
 public:
  // node_of_rank[r]: any numbers; renumbered from 0 by the nodes' lowest ranks. At least one rank.
  explicit Topology(const std::vector<int>& node_of_rank);

  int size() const { return static_cast<int>(node_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node(int rank) const { return node_[static_cast<std::size_t>(rank)]; }
  // The ranks of a node, ascending, and a rank's index among its node's.
  const std::vector<int>& members(int node) const { return members_[static_cast<std::size_t>(node)]; }
  int place(int rank) const { return place_[static_cast<std::size_t>(rank)]; }
  // One rank per node: at this place, modulo the node's size.
  std::vector<int> peers_at(int place) const {
    std::vector<int> peers;
    for (const std::vector<int>& all : members_)
      peers.push_back(all[static_cast<std::size_t>(place) % all.size()]);
    return peers;
  }
  int fewest() const { return fewest_; }
  int most() const { return most_; }
  bool even() const { return fewest_ * nodes() == size(); }
  // 1.5 ranks per node or more, and no node below half the mean: the smallest bounds the number of leaders.
  bool two_level() const {
    return nodes() > 1 && 2 * size() >= 3 * nodes() && 2 * fewest_ * nodes() >= size();
  }
  bool consecutive() const;
  // Unique among the Topologies of this process.
  std::uint64_t id() const { return id_; }

 private:
  std::vector<int> node_, place_;
  std::vector<std::vector<int>> members_;
  int fewest_ = 0, most_ = 0;
  std::uint64_t id_;
};

}  // namespace mpi_gdr
