// A builder's input: the collective, and this rank's place in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "common/types.hpp"

namespace mpi_gdr {

// Which ranks of a group share a node. Equal on all ranks; immutable, thread-safe.
class Topology {
 public:
  // node_of_rank[r]: any numbers; nodes are numbered from 0 by their lowest ranks. Not empty.
  explicit Topology(const std::vector<int>& node_of_rank);

  int size() const { return static_cast<int>(node_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node(int rank) const { return node_[static_cast<std::size_t>(rank)]; }
  // A node's ranks, ascending; place(): a rank's index among them.
  const std::vector<int>& members(int node) const { return members_[static_cast<std::size_t>(node)]; }
  int place(int rank) const { return place_[static_cast<std::size_t>(rank)]; }
  // One rank per node: at this place, modulo the node's size.
  std::vector<int> peers_at(int place) const {
    std::vector<int> peers;
    for (const std::vector<int>& all : members_)
      peers.push_back(all[static_cast<std::size_t>(place) % all.size()]);
    return peers;
  }
  int min_node_size() const { return min_node_size_; }
  int max_node_size() const { return max_node_size_; }
  bool even() const { return min_node_size_ * nodes() == size(); }
  // At least 1.5 ranks per node, and no node below half the mean, as the smallest node limits the leaders.
  bool two_level() const {
    return nodes() > 1 && 2 * size() >= 3 * nodes() && 2 * min_node_size_ * nodes() >= size();
  }
  bool consecutive() const;
  // Unique among the Topologies of this process.
  std::uint64_t id() const { return id_; }

 private:
  std::vector<int> node_, place_;
  std::vector<std::vector<int>> members_;
  int min_node_size_ = 0, max_node_size_ = 0;
  std::uint64_t id_;
};

// Equal on all ranks, except `rank`, `send_counts`, `recv_counts` and `node_counts`. The algorithm
// must depend on equal fields only. `count`, in elements:
//   AllReduce, Broadcast, Reduce   the whole buffer
//   AllGather, Gather              one rank's contribution; output holds size * count in rank order
//   ReduceScatter, Scatter         one rank's result;       input  holds size * count in rank order
//   AllToAll                       unused; send_counts, recv_counts: of each rank, blocks in rank order
// `counts`: empty, or for AllGather and ReduceScatter the elements of each rank's block (0 allowed), which
// have no gaps; replaces `count`.
//
// Buffers that a schedule may name, and aliasing that it must support (the executor skips a Copy with
// Scale::None between the same memory):
//   AllReduce      Input, Output      Input may be Output
//   Broadcast      Output on all      (root's data is in Output already)
//   Reduce         Input on all, Output on the root only; Input may be Output there
//   AllGather      Input, Output      Input may be Output's own block (offset block_offset(spec, rank))
//   ReduceScatter  Input, Output      Output may be Input's own block
//   AllToAll       Input, Output      never alias
//   Gather         Input on all, Output on the root only; Input may be Output's own block there
//   Scatter        Input on the root only, Output on all; Output may be Input's own block there
struct CollectiveSpec {
  Collective collective = Collective::Barrier;
  int rank = 0;
  int size = 1;
  int root = 0;
  std::uint64_t count = 0;
  DataType dtype = DataType::UInt8;
  ReduceOp op = ReduceOp::Sum;
  std::vector<std::uint64_t> send_counts, recv_counts;
  // For a two-level AllToAll: send_counts of this node's ranks, by place. Empty if the node has one rank.
  std::vector<std::uint64_t> node_counts;
  std::vector<std::uint64_t> counts;
  std::shared_ptr<const Topology> topology;  // null: all ranks are on one node
};

// Elements of rank r's block, and its offset in the buffer of all blocks; r = size: the end.
inline std::uint64_t block_count(const CollectiveSpec& spec, int r) {
  return spec.counts.empty() ? spec.count : spec.counts[static_cast<std::size_t>(r)];
}
inline std::uint64_t block_offset(const CollectiveSpec& spec, int r) {
  if (spec.counts.empty()) return static_cast<std::uint64_t>(r) * spec.count;
  return std::accumulate(spec.counts.begin(), spec.counts.begin() + r, std::uint64_t{0});
}

std::uint64_t input_count(const CollectiveSpec& spec);
std::uint64_t output_count(const CollectiveSpec& spec);
// Bytes of the larger buffer; with a root, of the root's.
std::uint64_t largest_buffer(const CollectiveSpec& spec);

// `count`; for uneven blocks their mean, with each block's share rounded down.
inline std::uint64_t mean_count(const CollectiveSpec& spec) {
  if (spec.counts.empty()) return spec.count;
  std::uint64_t mean = 0;
  for (const std::uint64_t block : spec.counts) mean += block / spec.counts.size();
  return mean;
}

// Builders' parameters, equal on all ranks.
struct Tuning {
  std::uint64_t chunk_bytes = 256 * 1024;    // target message size of pipelined algorithms
  int max_lanes = 4;                         // 1..kMaxLanes
  std::uint64_t staging_bytes = 256 * 1024;  // shared memory per rank for an operation
  std::uint64_t min_chunk_bytes = 8 * 1024;  // bytes; of chunks pipelined through Staging
  bool in_place = false;                     // large data in Staging is a mirror (schedule/schedule.hpp)
  bool no_messages = false;                  // shared-memory schedules use none, however long they become
  // For phases: ranks of this node share memory, else they use messages. May differ between nodes.
  bool node_shares = false;
  // Ranks per node that cross the network in a two-level all-reduce; 0: as many as the smallest node has.
  int leaders = 0;
};

}  // namespace mpi_gdr
