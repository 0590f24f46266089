#include "collectives/phases.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "collectives/build.hpp"
#include "collectives/selection_table.hpp"
#include "common/error.hpp"
#include "schedule/scattered.hpp"

namespace mpigdr {
namespace {

using collectives::piece;

// On devices a part is so many messages long where it crosses the network: long enough to hide what begins
// and ends it.
constexpr std::uint64_t kChunksPerPart = 16, kMostParts = 8;
// In one program a part is one message long, or more where there would be too many parts; an all-reduce,
// which sends the Nth part of a slice at a time, has slices that are as many times longer.
constexpr std::uint64_t kMostPartsInLanes = 4096, kMostNodesPerPart = 16;
// For each chunk of Staging the ranks of a node meet, which is dear where they share a core: in one program
// they send messages from so many bytes of the whole call on.
constexpr std::uint64_t kStagedLimit = std::uint64_t{1} << 20;

// The same schedule among other ranks: its rank i is ranks[i].
SchedulePtr among(const Schedule& schedule, const std::vector<int>& ranks) {
  auto moved = std::make_shared<Schedule>(schedule);
  for (Step& step : moved->steps)
    if (step.peer >= 0) step.peer = ranks[static_cast<std::size_t>(step.peer)];
  return moved;
}

std::uint64_t total(const Pieces& pieces) {
  std::uint64_t count = 0;
  for (const Piece& piece : pieces) count += piece.count;
  return count;
}

void append(Pieces& pieces, const Pieces& more) { pieces.insert(pieces.end(), more.begin(), more.end()); }

class PhaseWriter {
 public:
  PhaseWriter(const CollectiveSpec& spec, const Topology& topology, const Tuning& inside,
              const Tuning& between, bool one_program)
      : spec_(spec),
        topology_(topology),
        one_program_(one_program),
        chunk_bytes_(between.chunk_bytes),
        lanes_(static_cast<std::uint64_t>(between.max_lanes)),
        node_(topology.node(spec.rank)),
        place_(topology.place(spec.rank)),
        nodes_(topology.nodes()),
        ranks_(static_cast<int>(topology.members(node_).size())),
        leaders_(spec.collective == Collective::AllReduce && between.leaders > 0
                     ? std::min(between.leaders, topology.fewest())
                     : topology.fewest()),
        inside_(inside),
        between_(between) {
    if (!one_program_) return;
    const bool whole = spec.collective == Collective::AllReduce || spec.collective == Collective::Broadcast;
    shared_ = inside.node_shares && bytes(whole ? spec.count : blocks_.total()) < kStagedLimit;
    between_.max_lanes = 1;  // it is cut up already
    between_.chunk_bytes = std::numeric_limits<std::uint64_t>::max();
  }

  Phases build() {
    const Collective collective = spec_.collective;
    if (collective == Collective::AllReduce)
      all_reduce();
    else if (collective == Collective::AllGather)
      all_gather();
    else if (collective == Collective::ReduceScatter)
      reduce_scatter();
    else if (collective == Collective::Broadcast)
      broadcast();
    else if (collective == Collective::Barrier)
      barrier();
    else
      fail(ErrorCode::Internal, name(collective), " has no phases");
    return std::move(made_);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static Piece piece_of(const Slice& slice) { return {slice.offset, slice.count}; }

  // Into how many parts a buffer, or each block, of `count` elements is cut, if each rank that sends has
  // `sent` bytes in `messages` messages that cross the network. No part is empty if one of them is not.
  int cut(std::uint64_t count, std::uint64_t sent, std::uint64_t messages) {
    const std::uint64_t each = one_program_ ? std::max<std::uint64_t>(messages, 1) : kChunksPerPart;
    const std::uint64_t most = one_program_ ? kMostPartsInLanes : kMostParts;
    const std::uint64_t wanted = sent / chunk_bytes_ / each;
    auto number = std::clamp<std::uint64_t>(wanted, 1, std::clamp<std::uint64_t>(count, 1, most));
    if (one_program_) {
      const auto lanes = std::min(number, lanes_);
      number -= number % lanes;            // as many in each
      inside_.staging_bytes /= 2 * lanes;  // each has two rooms
      made_.lanes = static_cast<int>(lanes);
    }
    return made_.parts = static_cast<int>(number);
  }
  Slice part(const Slice& whole, int j) const {
    return piece(whole, static_cast<std::uint64_t>(made_.parts), static_cast<std::uint64_t>(j));
  }
  Slice part(std::uint64_t count, int j) const { return part({Buffer::Output, 0, count}, j); }
  std::uint64_t bytes(std::uint64_t count) const { return count * item_size(spec_.dtype); }

  // `elsewhere`: what another phase does of the operation, which is a sum here then.
  CollectiveSpec part_of(Collective collective, int rank, int size, std::uint64_t count,
                         ReduceOp elsewhere) const {
    CollectiveSpec spec{collective, rank, size};
    spec.count = count;
    spec.dtype = spec_.dtype;
    spec.op = spec_.op == elsewhere ? ReduceOp::Sum : spec_.op;
    return spec;
  }
  // The mean is taken where the nodes meet, and the factor is in by then.
  CollectiveSpec among_node(Collective collective, std::uint64_t count) const {
    return part_of(collective, place_, ranks_, count, ReduceOp::Avg);
  }
  CollectiveSpec among_nodes(Collective collective, std::uint64_t count) const {
    return part_of(collective, node_, nodes_, count, ReduceOp::PreMulSum);
  }
  static CollectiveSpec of_blocks(CollectiveSpec spec, std::vector<std::uint64_t> counts) {
    const bool even = std::all_of(counts.begin(), counts.end(), [&](auto c) { return c == counts[0]; });
    spec.count = counts[0];
    if (!even) spec.counts = std::move(counts);
    return spec;
  }

  int add(Phase phase, const SchedulePtr& schedule, const Scattered& where) {
    phase.schedule = scattered(*schedule, phase.spec.rank, where);
    made_.phases.push_back(std::move(phase));
    return static_cast<int>(made_.phases.size()) - 1;
  }
  // By the built-in table, the same for all parts, though they differ by some elements: all lanes have the
  // same rounds then. But rank 0 of Bruck's all-gather receives into the Output, which is in pieces, what
  // others send from Scratch, which is not.
  SchedulePtr by_messages(const Phase& phase) {
    const CollectiveSpec& spec = phase.spec;
    const Algorithm*& chosen = chosen_[{spec.collective, phase.inside}];
    if (!chosen) chosen = select_row(spec, false).algorithm;
    if (spec.collective == Collective::AllGather && chosen->name == std::string_view("bruck"))
      chosen = find_algorithm(spec.collective, "recursive_doubling");
    return chosen->build(spec, between_);
  }
  int add_between(const Phase& phase, const Scattered& where, const std::vector<int>& peers) {
    return add(phase, among(*by_messages(phase), peers), where);
  }
  int add_inside(const Phase& phase, const Scattered& where) {
    if (!shared_) return add(phase, by_messages(phase), where);
    const char* const name = phase.spec.collective == Collective::Barrier ? "flag" : "staged";
    return add(phase, find_algorithm(phase.spec.collective, name)->build(phase.spec, inside_), where);
  }
  // Of a group of one an all-gather is a copy.
  int add_copy(Buffer to, const Pieces& there, Buffer from, const Pieces& here, int j, int depends_on) {
    const CollectiveSpec spec = part_of(Collective::AllGather, 0, 1, total(there), ReduceOp::Avg);
    return add({true, spec, from, to, nullptr, j, depends_on},
               find_algorithm(Collective::AllGather, "ring")->build(spec, between_), {{here}, {there}});
  }
  // The same on all ranks of `number`.
  static std::vector<Pieces> on_all(int number, Pieces pieces) { return {index(number), std::move(pieces)}; }

  // While part j is between the nodes, part j + 1 gets there and part j - 1 comes from there.
  void all_reduce() {
    const auto leaders = static_cast<std::uint64_t>(leaders_);
    const std::vector<int> peers = topology_.peers_at(place_);
    int meeting = -1;  // of the part before
    std::uint64_t messages = std::min(static_cast<std::uint64_t>(nodes_), kMostNodesPerPart);
    // By messages inside, a leader receives a part from each rank.
    if (bytes(spec_.count) >= kStagedLimit)
      messages /= static_cast<std::uint64_t>(std::max(1, topology_.most() - 1));
    const int number = cut(spec_.count, bytes(spec_.count / leaders), messages);
    const auto gather = [&](int j) {
      const Slice whole = part(spec_.count, j);
      const CollectiveSpec slices = slices_of(whole, Collective::AllGather);
      Scattered where{{}, on_all(ranks_, {piece_of(whole)})};
      for (int k = 0; k < ranks_; ++k)
        where.input.push_back({{whole.offset + block_offset(slices, k), block_count(slices, k)}});
      add_inside({true, slices, Buffer::Output, Buffer::Output, nullptr, j, meeting}, where);
    };
    for (int j = 0; j < number; ++j) {
      const Slice whole = part(spec_.count, j);
      const CollectiveSpec slices = slices_of(whole, Collective::ReduceScatter);
      const Pieces own = {{whole.offset + block_offset(slices, place_), block_count(slices, place_)}};
      const int scatter = add_inside({true, slices, Buffer::Input, Buffer::Output, nullptr, j},
                                     {on_all(ranks_, {piece_of(whole)}), on_all(ranks_, own)});
      if (j > 0) gather(j - 1);
      if (place_ >= leaders_) continue;
      const CollectiveSpec slice = among_nodes(Collective::AllReduce, own[0].count);
      meeting = add_between({false, slice, Buffer::Output, Buffer::Output, nullptr, j, scatter},
                            {on_all(nodes_, own), on_all(nodes_, own)}, peers);
    }
    gather(number - 1);
  }
  // One slice for each leader, none for the other ranks of the node.
  CollectiveSpec slices_of(const Slice& whole, Collective collective) const {
    CollectiveSpec spec = among_node(collective, 0);
    const auto leaders = static_cast<std::uint64_t>(leaders_);
    for (int r = 0; r < ranks_; ++r)
      spec.counts.push_back(r < leaders_ ? piece(whole, leaders, static_cast<std::uint64_t>(r)).count : 0);
    return spec;
  }

  // Part j of a rank's block, and of this one's where it stands alone.
  Piece block(int rank, int j) const { return piece_of(part(blocks_.at(Buffer::Output, rank), j)); }
  Pieces own_block(int j) const { return {piece_of(part(blocks_.count(spec_.rank), j))}; }
  // Of the blocks of all ranks, that part of those which the rank at `place` of node v takes across the
  // network.
  Pieces carried(int v, int place, int j) const {
    Pieces pieces;
    const std::vector<int>& all = topology_.members(v);
    for (std::size_t k = index(place); place < leaders_ && k < all.size(); k += index(leaders_))
      pieces.push_back(block(all[k], j));
    return pieces;
  }
  // Of all nodes.
  Pieces carried(int place, int j) const {
    Pieces pieces;
    for (int v = 0; v < nodes_; ++v) append(pieces, carried(v, place, j));
    return pieces;
  }
  // What of each `number` places or nodes: count(k).
  template <typename Count>
  static std::vector<std::uint64_t> counts_of(int number, Count count) {
    std::vector<std::uint64_t> counts;
    for (int k = 0; k < number; ++k) counts.push_back(count(k));
    return counts;
  }
  int cut_blocks() {
    // Then a rank may give to one that gives it nothing.
    made_.one_way = blocks_.some_empty() || !topology_.even();
    const auto others = static_cast<std::uint64_t>(nodes_ - 1);
    return cut(blocks_.smallest(), bytes(blocks_.smallest()) * others, others);
  }
  // A leader deals with more than its own block.
  bool crowded() const { return ranks_ > leaders_; }

  void all_gather() {
    const int number = cut_blocks();
    for (int j = 0; j < number; ++j) {
      const Pieces own = own_block(j);
      int there = -1;
      if (crowded()) {
        Pieces all;
        for (const int rank : topology_.members(node_)) all.push_back(block(rank, j));
        const auto counts = counts_of(ranks_, [&](int k) { return all[index(k)].count; });
        there = add_inside({true, of_blocks(among_node(Collective::AllGather, 0), counts), Buffer::Input,
                            Buffer::Output, nullptr, j},
                           {on_all(ranks_, own), on_all(ranks_, all)});
      }
      if (place_ < leaders_) {
        const auto counts = counts_of(nodes_, [&](int v) { return total(carried(v, place_, j)); });
        there = add_between(
            {false, of_blocks(among_nodes(Collective::AllGather, 0), counts),
             crowded() ? Buffer::Output : Buffer::Input, Buffer::Output, nullptr, j, there},
            {on_all(nodes_, crowded() ? carried(node_, place_, j) : own), on_all(nodes_, carried(place_, j))},
            topology_.peers_at(place_));
      }
      Scattered where;
      Pieces all;
      for (int k = 0; k < ranks_; ++k) append(all, where.input.emplace_back(carried(k, j)));
      where.output = on_all(ranks_, all);
      const auto counts = counts_of(ranks_, [&](int k) { return total(where.input[index(k)]); });
      add_inside({true, of_blocks(among_node(Collective::AllGather, 0), counts), Buffer::Output,
                  Buffer::Output, nullptr, j, there},
                 where);
    }
  }

  // Of the memory in common, `count` elements more.
  Pieces common(std::uint64_t count) {
    made_.scratch_count += count;
    return {{made_.scratch_count - count, count}};
  }

  void reduce_scatter() {
    const int number = cut_blocks();
    for (int j = 0; j < number; ++j) {
      const Pieces own = own_block(j);
      const Pieces sums = common(total(carried(place_, j)));
      std::uint64_t at = sums[0].offset;
      int there = -1;
      // By messages for one node after the other: a block is in one piece then, as both sides of a message
      // are.
      for (int v = shared_ ? -1 : 0; v < (shared_ ? 0 : nodes_); ++v) {
        Pieces all;
        std::vector<std::uint64_t> counts;
        for (int k = 0; k < ranks_; ++k) {
          const Pieces some = v < 0 ? carried(k, j) : carried(v, k, j);
          append(all, some);
          counts.push_back(total(some));
        }
        Buffer from = Buffer::Input;
        if (v >= 0 && topology_.members(v).size() > index(leaders_)) {
          const Pieces packed = common(total(all));
          add_copy(Buffer::Scratch, packed, Buffer::Input, all, j, -1);
          from = Buffer::Scratch;
          all = packed;
        }
        there = add_inside({true, of_blocks(among_node(Collective::ReduceScatter, 0), counts), from,
                            Buffer::Scratch, nullptr, j},
                           {on_all(ranks_, all), on_all(ranks_, {{at, counts[index(place_)]}})});
        at += counts[index(place_)];
      }
      const auto of_node = [&](int k) { return total(carried(node_, k, j)); };
      const Pieces blocks = crowded() ? common(of_node(place_)) : own;
      if (place_ < leaders_) {
        const auto by_node = counts_of(nodes_, [&](int v) { return total(carried(v, place_, j)); });
        there =
            add_between({false, of_blocks(among_nodes(Collective::ReduceScatter, 0), by_node),
                         Buffer::Scratch, crowded() ? Buffer::Scratch : Buffer::Output, nullptr, j, there},
                        {on_all(nodes_, sums), on_all(nodes_, blocks)}, topology_.peers_at(place_));
      }
      if (crowded()) hand_out(blocks, counts_of(ranks_, of_node), own, j, there);
    }
  }
  // What leaders have of their node's blocks goes to all of its ranks, of which each takes its own.
  void hand_out(const Pieces& blocks, const std::vector<std::uint64_t>& counts, const Pieces& own, int j,
                int depends_on) {
    std::uint64_t all = 0, before = 0;
    for (int k = 0; k < ranks_; ++k) {
      if (k < place_ % leaders_) before += counts[index(k)];
      all += counts[index(k)];
    }
    for (int k = place_ % leaders_; k < place_; k += leaders_)
      before += block(topology_.members(node_)[index(k)], j).count;
    const Pieces gathered = common(all);
    const int done = add_inside({true, of_blocks(among_node(Collective::AllGather, 0), counts),
                                 Buffer::Scratch, Buffer::Scratch, nullptr, j, depends_on},
                                {on_all(ranks_, blocks), on_all(ranks_, gathered)});
    add_copy(Buffer::Output, own, Buffer::Scratch, {{gathered[0].offset + before, own[0].count}}, j, done);
  }

  void broadcast() {
    made_.one_way = true;
    const std::vector<int> peers = topology_.peers_at(topology_.place(spec_.root));
    const int leader = peers[index(node_)];
    const int number = cut(spec_.count, bytes(spec_.count), 1);
    for (int j = 0; j < number; ++j) {
      const Slice whole = part(spec_.count, j);
      const Pieces own = {piece_of(whole)};
      int there = -1;
      if (spec_.rank == leader) {
        CollectiveSpec chain = among_nodes(Collective::Broadcast, whole.count);
        chain.root = topology_.node(spec_.root);
        there = add_between({false, chain, Buffer::Input, Buffer::Output, nullptr, j},
                            {on_all(nodes_, {}), on_all(nodes_, own)}, peers);
      }
      CollectiveSpec tree = among_node(Collective::Broadcast, whole.count);
      tree.root = topology_.place(leader);
      add_inside({true, tree, Buffer::Input, Buffer::Output, nullptr, j, there},
                 {on_all(ranks_, {}), on_all(ranks_, own)});
    }
  }

  void barrier() {
    const CollectiveSpec here = among_node(Collective::Barrier, 0);
    const Scattered nothing{on_all(spec_.size, {}), on_all(spec_.size, {})};
    add_inside({.inside = true, .spec = here}, nothing);
    if (place_ == 0)
      add_between({.spec = among_nodes(Collective::Barrier, 0)}, nothing, topology_.peers_at(0));
    add_inside({.inside = true, .spec = here}, nothing);
  }

  const CollectiveSpec& spec_;
  const Topology& topology_;
  const bool one_program_;
  const std::uint64_t chunk_bytes_, lanes_;
  const int node_, place_, nodes_, ranks_, leaders_;
  const collectives::Blocks blocks_{spec_};
  bool shared_ = true;  // what is inside goes through Staging; else by messages
  Tuning inside_, between_;
  std::map<std::pair<Collective, bool>, const Algorithm*> chosen_;  // inside, or between
  Phases made_;
};

}  // namespace

Phases phases_of(const CollectiveSpec& spec, const Topology& topology, const Tuning& inside,
                 const Tuning& between, bool one_program) {
  MPIGDR_CHECK(spec.size == topology.size() && (one_program || has_phases(spec, topology)));
  return PhaseWriter(spec, topology, inside, between, one_program).build();
}

}  // namespace mpigdr
