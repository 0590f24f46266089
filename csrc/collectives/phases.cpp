#include "collectives/phases.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "collectives/build.hpp"
#include "collectives/library_calls.hpp"
#include "collectives/selection_table.hpp"
#include "common/error.hpp"
#include "schedule/scattered.hpp"

namespace mpi_gdr {
namespace {

using collectives::piece;

// On devices: minimum messages per part, to amortise its start and end; maximum number of parts.
constexpr std::uint64_t kChunksPerPart = 16, kMostParts = 8;
// For join(): maximum number of parts, each at least one message long. An all-reduce over N nodes sends 1/N
// of a part per message, so its parts are N messages long, at most kMostNodesPerPart.
constexpr std::uint64_t kMostPartsInLanes = 4096, kMostNodesPerPart = 16;
// From this many bytes, ranks of a node send messages for host tensors: each chunk through Staging
// synchronises them.
constexpr std::uint64_t kMessagesFrom = std::uint64_t{1} << 20;

std::uint64_t total(const Pieces& pieces) {
  std::uint64_t count = 0;
  for (const Piece& piece : pieces) count += piece.count;
  return count;
}

Phase by_library(const CollectiveSpec& spec, Buffer from, Buffer to, const Scattered& where) {
  Phase phase{spec};
  phase.input = spec.collective == Collective::Broadcast ? to : from;  // in place
  phase.output = to;
  phase.kind = Phase::Kind::Library;
  phase.calls = std::make_shared<const std::vector<LibraryCall>>(library_calls(spec, where));
  return phase;
}

class PhaseWriter {
 public:
  PhaseWriter(const CollectiveSpec& spec, const Topology& topology, Phase::Kind kind, const Tuning& inside,
              const Tuning& between)
      : spec_(spec),
        topology_(topology),
        chunk_bytes_(between.chunk_bytes),
        lanes_(static_cast<std::uint64_t>(between.max_lanes)),
        node_(topology.node(spec.rank)),
        place_(topology.place(spec.rank)),
        nodes_(topology.nodes()),
        ranks_(static_cast<int>(members_.size())),
        leaders_(spec.collective == Collective::AllReduce && between.leaders > 0
                     ? std::min(between.leaders, topology.min_node_size())
                     : topology.min_node_size()),
        kind_(kind),
        inside_(inside),
        between_(between) {
    if (!for_join()) return;
    if (largest_buffer(spec) >= kMessagesFrom) kind_ = Phase::Kind::Messages;
    between_.max_lanes = 1;  // parts are the chunks
    between_.chunk_bytes = std::numeric_limits<std::uint64_t>::max();
  }

  Phases build() {
    const Collective collective = spec_.collective;
    if (collective == AllReduce)
      all_reduce();
    else if (collective == AllGather)
      all_gather();
    else if (collective == ReduceScatter)
      reduce_scatter();
    else if (collective == Broadcast)
      broadcast();
    else if (collective == Barrier)
      barrier();
    else if (collective == AllToAll)
      counts();
    else
      fail(ErrorCode::Internal, name(collective), " has no phases");
    return std::move(made_);
  }

 private:
  using enum Collective;
  using enum Buffer;
  using Counts = std::vector<std::uint64_t>;

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  bool for_join() const { return kind_ < Phase::Kind::Devices; }
  std::uint64_t bytes(std::uint64_t count) const { return count * item_size(spec_.dtype); }

  // Sets the number of parts of a buffer, or of each block, of `count` elements, if each rank sends `sent`
  // bytes in `messages` messages between nodes. Parts are not empty, unless the whole block is.
  void cut(std::uint64_t count, std::uint64_t sent, std::uint64_t messages) {
    const std::uint64_t each = for_join() ? std::max<std::uint64_t>(messages, 1) : kChunksPerPart;
    const std::uint64_t most = for_join() ? kMostPartsInLanes : kMostParts;
    const std::uint64_t wanted = sent / chunk_bytes_ / each;
    auto number = std::clamp<std::uint64_t>(wanted, 1, std::clamp<std::uint64_t>(count, 1, most));
    if (for_join()) {
      const auto lanes = std::min(number, lanes_);
      number -= number % lanes;            // equally many per lane
      inside_.staging_bytes /= 2 * lanes;  // two regions of Staging per lane
      made_.lanes = static_cast<int>(lanes);
    }
    made_.parts = static_cast<int>(number);
  }
  Piece part(const Slice& whole) const {
    const Slice some = piece(whole, index(made_.parts), index(part_));
    return {some.offset, some.count};
  }
  Piece part(std::uint64_t count) const { return part({Output, 0, count}); }

  // `counts`: of each rank's block, or one for all. `elsewhere`: an op that another phase applies; this one
  // sums.
  CollectiveSpec among(Collective collective, int rank, int size, Counts counts, ReduceOp elsewhere) const {
    CollectiveSpec spec{collective, rank, size};
    const bool even = std::all_of(counts.begin(), counts.end(), [&](auto c) { return c == counts[0]; });
    spec.count = counts[0];
    if (!even) spec.counts = std::move(counts);
    spec.dtype = spec_.dtype;
    spec.op = spec_.op == elsewhere ? ReduceOp::Sum : spec_.op;
    return spec;
  }
  // The phase between the nodes takes the mean, the phase inside multiplies by the factor.
  CollectiveSpec among_node(Collective collective, Counts counts) const {
    return among(collective, place_, ranks_, std::move(counts), ReduceOp::Avg);
  }
  CollectiveSpec among_nodes(Collective collective, Counts counts) const {
    return among(collective, node_, nodes_, std::move(counts), ReduceOp::PreMulSum);
  }

  struct Move {
    Buffer from = Input, to = Output;
    Scattered where;
    int depends_on = -1;
  };
  int add(Phase phase, const Move& move) {
    phase.part = part_;
    phase.depends_on = move.depends_on;
    made_.phases.push_back(std::move(phase));
    return static_cast<int>(made_.phases.size()) - 1;
  }
  int add(Phase::Kind kind, const CollectiveSpec& spec, const SchedulePtr& schedule, const Move& move) {
    return add({.spec = spec,
                .input = move.from,
                .output = move.to,
                .kind = kind,
                .schedule = scattered(*schedule, spec.rank, move.where)},
               move);
  }
  // The built-in table selects once for all parts, so that all lanes have the same rounds. Not Bruck's
  // all-gather: its rank 0 would receive one message into several pieces of Output.
  int by_messages(const CollectiveSpec& spec, Move move, const std::vector<int>& ranks) {
    const Algorithm*& chosen = chosen_[{spec.collective, &ranks == &members_}];
    if (!chosen) chosen = select_row(spec, false).algorithm;
    if (spec.collective == AllGather && chosen->name == std::string_view("bruck"))
      chosen = find_algorithm(AllGather, "recursive_doubling");
    move.where.ranks = ranks;
    return add(Phase::Kind::Messages, spec, chosen->build(spec, between_), move);
  }
  int between(const CollectiveSpec& spec, const Move& move) { return by_messages(spec, move, peers_); }
  int inside(const CollectiveSpec& spec, const Move& move) {
    if (kind_ == Phase::Kind::Messages) return by_messages(spec, move, members_);
    if (kind_ == Phase::Kind::Library && ranks_ > 1)
      return add(by_library(spec, move.from, move.to, move.where), move);
    const char* const name = spec.collective == Barrier ? "flag" : "staged";
    const SchedulePtr schedule = find_algorithm(spec.collective, name)->build(spec, inside_);
    return add(schedule->shared ? kind_ : Phase::Kind::Messages, spec, schedule, move);  // not shared: 1 rank
  }
  int copy(const Move& move) {
    const CollectiveSpec spec = among(AllGather, 0, 1, {total(move.where.output[0])}, ReduceOp::Avg);
    return add(Phase::Kind::Messages, spec, find_algorithm(AllGather, "ring")->build(spec, between_), move);
  }

  // While one part is exchanged between nodes, the next is reduce-scattered inside and the previous gathered.
  void all_reduce() {
    std::uint64_t messages = std::min(static_cast<std::uint64_t>(nodes_), kMostNodesPerPart);
    // By messages, a leader receives a part from each rank of its node.
    if (bytes(spec_.count) >= kMessagesFrom) messages /= index(std::max(1, topology_.max_node_size() - 1));
    cut(spec_.count, bytes(spec_.count / index(leaders_)), messages);
    int meeting = -1;  // the previous part's phase between the nodes
    const auto gather = [&] {
      inside(of_slices(AllGather), {Output, Output, {slices(), {whole()}}, meeting});
    };
    for (part_ = 0; part_ < made_.parts; ++part_) {
      const Pieces own = slices()[index(place_)];
      const int scatter = inside(of_slices(ReduceScatter), {Input, Output, {{whole()}, {own}}});
      if (part_ > 0) {
        --part_;
        gather();
        ++part_;
      }
      if (place_ < leaders_)
        meeting = between(among_nodes(AllReduce, {total(own)}), {Output, Output, {{own}, {own}}, scatter});
    }
    --part_;
    gather();
  }
  Pieces whole() const { return {part(spec_.count)}; }
  std::vector<Pieces> slices() const {
    const Piece all = part(spec_.count);
    std::vector<Pieces> slices;
    for (int k = 0; k < ranks_; ++k) {
      const auto leaders = index(leaders_), at = std::min(index(k), leaders);
      Slice own = piece({Output, all.offset, all.count}, leaders, at);
      if (kind_ == Phase::Kind::Library) {  // NCCL's blocks have one length
        std::uint64_t each = all.count / leaders;
        if (each >= 64) each -= each % 64;  // aligned vectors
        own.offset = all.offset + at * each;
        own.count = at + 1 < leaders ? each : all.offset + all.count - own.offset;
      }
      slices.push_back({{own.offset, k < leaders_ ? own.count : 0}});
    }
    return slices;
  }
  CollectiveSpec of_slices(Collective collective) const {
    return among_node(collective, counts_of(slices()));
  }
  static Counts counts_of(const std::vector<Pieces>& all) {
    Counts counts;
    for (const Pieces& some : all) counts.push_back(total(some));
    return counts;
  }

  // The current part of a rank's block in a buffer of all blocks, and of this rank's in a buffer with one
  // block.
  Piece block(int rank) const { return part(blocks_.at(Output, rank)); }
  Pieces own_block() const { return {part(blocks_.count(spec_.rank))}; }
  // The current part of the blocks that the rank at `place` of node v carries between the nodes.
  Pieces carried(int v, int place) const {
    Pieces pieces;
    const std::vector<int>& all = topology_.members(v);
    for (std::size_t k = index(place); place < leaders_ && k < all.size(); k += index(leaders_))
      pieces.push_back(block(all[k]));
    return pieces;
  }
  // carried_from(): carried() by node. carried_on(): by place, on node v or (v < 0) joined over all nodes.
  std::vector<Pieces> carried_from(int place) const {
    std::vector<Pieces> all;
    for (int v = 0; v < nodes_; ++v) all.push_back(carried(v, place));
    return all;
  }
  std::vector<Pieces> carried_on(int v) const {
    std::vector<Pieces> all;
    for (int k = 0; k < ranks_; ++k) all.push_back(v < 0 ? joined(carried_from(k)) : carried(v, k));
    return all;
  }
  static Pieces joined(const std::vector<Pieces>& all) {
    Pieces pieces;
    for (const Pieces& some : all) pieces.insert(pieces.end(), some.begin(), some.end());
    return pieces;
  }
  void cut_blocks() {
    // A rank may send to a rank that sends it nothing.
    made_.one_way = blocks_.some_empty() || !topology_.even();
    const auto others = static_cast<std::uint64_t>(nodes_ - 1);
    // NCCL's blocks must be contiguous, and parts of blocks are not: a single part.
    const bool whole = kind_ == Phase::Kind::Library;
    cut(whole ? 1 : blocks_.smallest(), bytes(blocks_.smallest()) * others, others);
  }
  // Whether leaders of this node carry more than their own blocks.
  bool crowded() const { return ranks_ > leaders_; }

  void all_gather() {
    cut_blocks();
    for (part_ = 0; part_ < made_.parts; ++part_) {
      const Pieces own = own_block();
      int there = -1;
      if (crowded()) {
        std::vector<Pieces> all;
        for (const int rank : members_) all.push_back({block(rank)});
        there = inside(among_node(AllGather, counts_of(all)), {Input, Output, {{own}, {joined(all)}}});
      }
      if (place_ < leaders_) {
        const std::vector<Pieces> all = carried_from(place_);
        const Pieces& here = crowded() ? all[index(node_)] : own;
        there = between(among_nodes(AllGather, counts_of(all)),
                        {crowded() ? Output : Input, Output, {{here}, {joined(all)}}, there});
      }
      const std::vector<Pieces> all = carried_on(-1);
      inside(among_node(AllGather, counts_of(all)), {Output, Output, {all, {joined(all)}}, there});
    }
  }

  Pieces common(std::uint64_t count) {
    made_.scratch_count += count;
    return {{made_.scratch_count - count, count}};
  }

  void reduce_scatter() {
    cut_blocks();
    for (part_ = 0; part_ < made_.parts; ++part_) {
      const Pieces own = own_block();
      const std::vector<Pieces> by_node = carried_from(place_);
      const Pieces sums = common(total(joined(by_node)));
      std::uint64_t at = sums[0].offset;
      int there = -1;
      // With messages, sums for one node after the other: a message is then one piece at both ends.
      const bool at_once = kind_ != Phase::Kind::Messages;
      for (int v = at_once ? -1 : 0; v < (at_once ? 0 : nodes_); ++v) {
        const std::vector<Pieces> some = carried_on(v);
        const Counts counts = counts_of(some);
        Buffer from = Input;
        Pieces all = joined(some);
        if (v >= 0 && topology_.members(v).size() > index(leaders_)) {
          const Pieces packed = common(total(all));
          copy({Input, Scratch, {{all}, {packed}}});
          from = Scratch;
          all = packed;
        }
        const std::uint64_t sum = counts[index(place_)];
        there = inside(among_node(ReduceScatter, counts), {from, Scratch, {{all}, {{{at, sum}}}}});
        at += sum;
      }
      const Counts of_node = counts_of(carried_on(node_));
      const Pieces blocks = crowded() ? common(of_node[index(place_)]) : own;
      if (place_ < leaders_)
        there = between(among_nodes(ReduceScatter, counts_of(by_node)),
                        {Scratch, crowded() ? Scratch : Output, {{sums}, {blocks}}, there});
      if (crowded()) hand_out(blocks, of_node, own, there);
    }
  }
  // Gathers the leaders' blocks on all ranks of the node, each of which takes its own.
  void hand_out(const Pieces& blocks, const Counts& counts, const Pieces& own, int depends_on) {
    std::uint64_t all = 0, before = 0;
    for (int k = 0; k < leaders_; ++k)
      for (int i = k; i < ranks_; i += leaders_) {
        if (i == place_) before = all;
        all += block(members_[index(i)]).count;
      }
    const Pieces gathered = common(all);
    const Pieces mine = {{gathered[0].offset + before, own[0].count}};
    const int done =
        inside(among_node(AllGather, counts), {Scratch, Scratch, {{blocks}, {gathered}}, depends_on});
    copy({Scratch, Output, {{mine}, {own}}, done});
  }

  void broadcast() {
    made_.one_way = true;
    const int leader = peers_[index(node_)];
    cut(spec_.count, bytes(spec_.count), 1);
    for (part_ = 0; part_ < made_.parts; ++part_) {
      const Move move{Input, Output, {{}, {whole()}}};
      Move out = move;
      if (spec_.rank == leader) {
        CollectiveSpec chain = among_nodes(Broadcast, {part(spec_.count).count});
        chain.root = topology_.node(spec_.root);
        out.depends_on = between(chain, move);
      }
      CollectiveSpec tree = among_node(Broadcast, {part(spec_.count).count});
      tree.root = topology_.place(leader);
      inside(tree, out);
    }
  }

  void barrier() {
    inside(among_node(Barrier, {0}), {});
    if (place_ == 0) between(among_nodes(Barrier, {0}), {});
    inside(among_node(Barrier, {0}), {});
  }
  void counts() {
    cut(1, 0, 1);
    inside(among_node(AllGather, {index(spec_.size)}), {});
  }

  const CollectiveSpec& spec_;
  const Topology& topology_;
  const std::vector<int>& members_ = topology_.members(topology_.node(spec_.rank));
  // One rank of each node, at this rank's place, or at the root's.
  const std::vector<int> peers_ =
      topology_.peers_at(topology_.place(spec_.collective == Broadcast ? spec_.root : spec_.rank));
  const std::uint64_t chunk_bytes_, lanes_;
  const int node_, place_, nodes_, ranks_, leaders_;
  const collectives::Blocks blocks_{spec_};
  Phase::Kind kind_;  // inside a node
  Tuning inside_, between_;
  std::map<std::pair<Collective, bool>, const Algorithm*> chosen_;  // true: inside
  int part_ = 0;                                                    // the current one
  Phases made_;
};

}  // namespace

Phases phases_of(const CollectiveSpec& spec, const Topology& topology, Phase::Kind kind, const Tuning& inside,
                 const Tuning& between) {
  MPI_GDR_CHECK(spec.size == topology.size() && (kind < Phase::Kind::Devices || has_phases(spec, topology)));
  return PhaseWriter(spec, topology, kind, inside, between).build();
}

Phases whole_of(const CollectiveSpec& spec, const SchedulePtr& schedule) {
  Phase phase{spec};
  phase.kind = schedule->shared ? Phase::Kind::Devices : Phase::Kind::Messages;
  phase.schedule = schedule;
  return {.phases = {std::move(phase)}, .one_way = schedule->one_way};
}

Phases whole_by_library(const CollectiveSpec& spec) {
  return {.phases = {by_library(spec, Buffer::Input, Buffer::Output, {})}};
}

bool has_phases(const CollectiveSpec& spec, const Topology& topology) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{32} << 30;
  const Collective c = spec.collective;
  const bool whole = c == Collective::AllReduce || c == Collective::Broadcast;
  const bool blocks = c == Collective::AllGather || c == Collective::ReduceScatter;
  return topology.nodes() > 1 && (whole || (blocks && spec.counts.empty() && topology.even())) &&
         largest_buffer(spec) <= kMostBytes;
}

}  // namespace mpi_gdr
