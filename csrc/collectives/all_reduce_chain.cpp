// All-reduce over several nodes in the order of ranks: a partial fold goes from node to node, each of which
// adds its own ranks; the result comes back the same way. Each leader of a node has a slice.
//   T = T_inside + (2N - 3 + k) (alpha + n/(l k) beta) + T_inside, in k chunks
// Source: the chain of the pipelined reduction in Traff, Ripke, "Optimal broadcast for fully connected
// networks" (HPCC 2005), over nodes instead of ranks.
// Where each node's ranks are consecutive the fold is in rank order, rounded at each node's end: one left
// fold (`ordered`) for dtypes with keeps_sums() only.
#include <memory>

#include "collectives/build.hpp"

namespace mpi_gdr::collectives {
namespace {

// The return path starts when the first chunk arrives: small chunks shorten that delay for short slices.
Tuning in_small_chunks(Tuning tuning, std::uint64_t slice_bytes) {
  constexpr std::uint64_t kChunks = 16, kLeastBytes = 32 * 1024;
  tuning.chunk_bytes = std::min(tuning.chunk_bytes, std::max(slice_bytes / kChunks, kLeastBytes));
  return tuning;
}

class Chain {
 public:
  Chain(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology, const Tuning& tuning)
      : writer_(writer),
        spec_(spec),
        node_(topology.node(spec.rank)),
        nodes_(topology.nodes()),
        leaders_(topology.min_node_size()),
        place_(topology.place(spec.rank)),
        local_(topology.members(node_)),
        peers_(topology.peers_at(place_)),
        slices_(spec.count, leaders_),
        contribution_(writer, spec),
        pipeline_(slices_.smallest(), spec,
                  in_small_chunks(tuning, slices_.smallest() * item_size(spec.dtype))),
        most_(pipeline_.largest_chunk(slices_.largest())) {}

  void write() {
    for (int lane = 0; lane < pipeline_.lanes; ++lane) {
      writer_.lane();
      contribution_.scale(leaders_,
                          [&](int k) { return pipeline_.lane_slice(slices_.at(Buffer::Input, k), lane); });
      arrived_ = writer_.scratch(leads() ? most_ * local_.size() : 0);
      partial_ = writer_.scratch(leads() && node_ + 1 < nodes_ ? most_ : 0);
      for (std::uint64_t i = 0; i < pipeline_.chunks; ++i) {
        gather(lane, i);
        if (leads()) pass_on(lane, i);
        hand_out(lane, i);
      }
    }
  }

 private:
  bool leads() const { return place_ < leaders_; }
  Slice chunk(Buffer buffer, int leader, int lane, std::uint64_t i) const {
    return pipeline_.chunk(slices_.at(buffer, leader), lane, i);
  }
  Slice room(std::size_t k, std::uint64_t count) const {
    return {Buffer::Scratch, arrived_.offset + k * most_, count};
  }

  // Sends each contribution to the leader that folds it. A leader also receives the previous node's fold.
  void gather(int lane, std::uint64_t i) {
    writer_.round();
    for (int k = 0; k < leaders_; ++k)
      if (k != place_)
        writer_.send(local_[static_cast<std::size_t>(k)], contribution_.at(chunk(Buffer::Input, k, lane, i)));
    if (!leads()) return;
    const std::uint64_t count = chunk(Buffer::Input, place_, lane, i).count;
    for (std::size_t k = 0; k < local_.size(); ++k)
      if (local_[k] != spec_.rank) writer_.recv(local_[k], room(k, count));
    if (node_ > 0) writer_.recv(peer(-1), room(static_cast<std::size_t>(place_), count));
  }
  int peer(int step) const { return peers_[static_cast<std::size_t>(node_ + step)]; }

  void pass_on(int lane, std::uint64_t i) {
    const Slice result = chunk(Buffer::Output, place_, lane, i);
    const Slice own = contribution_.at(chunk(Buffer::Input, place_, lane, i));
    std::vector<Slice> sources;
    if (node_ > 0) sources.push_back(room(static_cast<std::size_t>(place_), result.count));
    for (std::size_t k = 0; k < local_.size(); ++k)
      sources.push_back(local_[k] == spec_.rank ? own : room(k, result.count));
    const bool last = node_ + 1 == nodes_;
    Slice folded = last ? result : Slice{Buffer::Scratch, partial_.offset, result.count};
    writer_.round();
    if (sources.size() > 1)
      writer_.reduce(folded, sources, last ? final_scale(spec_.op) : Scale::None);
    else
      writer_.copy(folded, own);
    if (!last) {
      writer_.round();
      writer_.send(peer(1), folded);
      writer_.recv(peer(1), result);
    }
    if (node_ > 0) {
      writer_.round();
      writer_.send(peer(-1), result);
    }
  }

  void hand_out(int lane, std::uint64_t i) {
    writer_.round();
    for (int k = 0; k < leaders_; ++k)
      if (k != place_) writer_.recv(local_[static_cast<std::size_t>(k)], chunk(Buffer::Output, k, lane, i));
    if (!leads()) return;
    for (const int rank : local_)
      if (rank != spec_.rank) writer_.send(rank, chunk(Buffer::Output, place_, lane, i));
  }

  ScheduleWriter& writer_;
  const CollectiveSpec& spec_;
  const int node_, nodes_, leaders_, place_;
  const std::vector<int>& local_;  // the ranks of this node
  const std::vector<int> peers_;   // the ranks at this place of each node
  const Blocks slices_;            // of the buffer, by leader
  const Contribution contribution_;
  const Pipeline pipeline_;
  const std::uint64_t most_;  // elements of the largest chunk
  // Per lane. arrived_: inputs by place, at this rank's the previous node's fold; partial_: the new fold.
  Slice arrived_, partial_;
};

}  // namespace

void all_reduce_chain(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const std::shared_ptr<const Topology> topology =
      spec.topology
          ? spec.topology
          : std::make_shared<const Topology>(std::vector<int>(static_cast<std::size_t>(spec.size), 0));
  if (topology->consecutive() && keeps_sums(spec.dtype)) writer.ordered();
  Chain(writer, spec, *topology, tuning).write();
}

}  // namespace mpi_gdr::collectives
