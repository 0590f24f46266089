// All-reduce over nodes of m ranks each, N of them: inside each node a reduce-scatter among its leaders,
// between the nodes an all-reduce of each leader's slice, all of them at the same time, inside each node an
// all-gather. The first l ranks of each node lead: as many as the smallest node has, or fewer (leaders_of).
//   T = 2 ((m-1) alpha' + (m-1)/l n beta') + (m-1)/l n gamma + T_all_reduce(N, n/l), that of a leader: the
//       first two terms inside the node; lanes overlap all three
//   steps 2 + those between N nodes, bytes sent per leader (l-1 + m-1)/l n inside and what an all-reduce of
//   n/l sends between the nodes, reductions (m-1)/l n + those of n/l
// Source: two_level.hpp.
//
// Inside a node a slice is folded in one Reduce, in the order of the ranks; between the nodes it is whatever
// the built-in table has for N ranks. Leaders of one slice get equal bits from that, and the others get them
// from them.
#include "collectives/selection_table.hpp"
#include "collectives/two_level.hpp"

namespace mpigdr::collectives {
namespace {

// A chunk is a slice of one leader, of which what travels between N nodes is the Nth part: larger by that,
// and smaller by the number of ranks that it comes from, for the sake of the scratch that a leader receives
// it in.
constexpr std::uint64_t kMostNodesPerChunk = 16, kSmallestChunk = 64 * 1024;

Tuning chunks_for(const Topology& topology, Tuning tuning) {
  const std::uint64_t nodes = std::min(static_cast<std::uint64_t>(topology.nodes()), kMostNodesPerChunk);
  const auto senders = static_cast<std::uint64_t>(std::max(1, topology.most() - 1));
  const std::uint64_t least = std::min(tuning.chunk_bytes, kSmallestChunk);
  tuning.chunk_bytes = std::max(least, tuning.chunk_bytes * nodes / senders);
  return tuning;
}

// What leaders of one slice do, the same for all lanes and chunks, which differ by some elements: all lanes
// must have the same rounds.
CollectiveSpec between_nodes(const CollectiveSpec& spec, const TwoLevel& at, std::uint64_t count) {
  CollectiveSpec among = spec;
  among.topology = nullptr;
  among.rank = at.node;
  among.size = at.nodes;
  among.count = count;
  if (among.op == ReduceOp::PreMulSum) among.op = ReduceOp::Sum;  // the factor is in already
  return among;
}

}  // namespace

void all_reduce_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const TwoLevel at(spec);
  const auto leaders = static_cast<std::uint64_t>(leaders_of(*at.topology, tuning));
  const auto place = static_cast<std::uint64_t>(at.place), ranks = static_cast<std::uint64_t>(at.ranks);
  const bool leader = place < leaders;
  std::vector<int> peers;  // those who lead the same slice
  for (int v = 0; leader && v < at.nodes; ++v) peers.push_back(at.members(v)[place]);

  const Slice input{Buffer::Input, 0, spec.count}, output{Buffer::Output, 0, spec.count};
  std::uint64_t smallest = spec.count;
  for (std::uint64_t j = 0; j < leaders; ++j) smallest = std::min(smallest, piece(input, leaders, j).count);
  const Pipeline pipeline(smallest, spec, chunks_for(*at.topology, tuning));
  const std::uint64_t longest = pipeline.largest_chunk(largest_piece(spec.count, leaders));
  const Algorithm& inner = select_algorithm(between_nodes(spec, at, longest), false);
  Tuning whole = tuning;  // it is cut up already
  whole.max_lanes = 1;
  whole.chunk_bytes = std::max<std::uint64_t>(tuning.chunk_bytes, longest * item_size(spec.dtype));
  const Contribution contribution(writer, spec);
  const Slice own = contribution.at(input);

  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    contribution.scale(leaders,
                       [&](std::uint64_t j) { return pipeline.lane_slice(piece(input, leaders, j), lane); });
    const Slots arrived(writer, leader ? ranks - 1 : 0, longest);
    Slice scratch{Buffer::Scratch, 0, 0};  // of what goes between the nodes

    for (std::uint64_t i = 0; i < pipeline.chunks; ++i) {
      const auto slice = [&](const Slice& buffer, std::uint64_t j) {
        return pipeline.chunk(piece(buffer, leaders, j), lane, i);
      };
      const auto others = [&](std::uint64_t number, const auto& body) {
        for (std::uint64_t k = 0; k < number; ++k)
          if (k != place) body(k, at.local[k]);
      };
      const Slice mine = leader ? slice(output, place) : Slice{Buffer::Output, 0, 0};
      const auto from = [&](std::uint64_t k) {
        return k == place ? slice(own, place) : arrived.at(k < place ? k : k - 1, mine.count);
      };
      writer.round();
      others(leaders, [&](std::uint64_t j, int rank) { writer.send(rank, slice(own, j)); });
      if (leader) others(ranks, [&](std::uint64_t k, int rank) { writer.recv(rank, from(k)); });
      if (leader) {
        writer.round();
        std::vector<Slice> sources;
        for (std::uint64_t k = 0; k < ranks; ++k) sources.push_back(from(k));
        if (ranks > 1)
          writer.reduce(mine, sources, at.nodes == 1 ? final_scale(spec.op) : Scale::None);
        else if (own.buffer == Buffer::Input)
          writer.copy(mine, sources[0]);
      }
      if (leader && at.nodes > 1)
        embed(writer, *inner.build(between_nodes(spec, at, mine.count), whole), peers, mine, scratch);
      writer.round();
      others(leaders, [&](std::uint64_t j, int rank) { writer.recv(rank, slice(output, j)); });
      if (leader) others(ranks, [&](std::uint64_t, int rank) { writer.send(rank, mine); });
    }
  }
}

}  // namespace mpigdr::collectives
