#include "collectives/phases.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "collectives/build.hpp"
#include "collectives/selection_table.hpp"
#include "collectives/two_level.hpp"
#include "common/error.hpp"
#include "schedule/scattered.hpp"

namespace mpigdr {
namespace {

using collectives::piece;

// A part is so many messages long where it crosses the network: long enough to hide what begins and ends it.
constexpr std::uint64_t kChunksPerPart = 16, kMostParts = 8;

// The same schedule among other ranks: its rank i is ranks[i].
SchedulePtr among(const Schedule& schedule, const std::vector<int>& ranks) {
  auto moved = std::make_shared<Schedule>(schedule);
  for (Step& step : moved->steps)
    if (step.peer >= 0) step.peer = ranks[static_cast<std::size_t>(step.peer)];
  return moved;
}

class PhaseWriter {
 public:
  PhaseWriter(const CollectiveSpec& spec, const Topology& topology, const Tuning& inside,
              const Tuning& between)
      : spec_(spec),
        topology_(topology),
        inside_(inside),
        between_(between),
        node_(topology.node(spec.rank)),
        place_(topology.place(spec.rank)),
        nodes_(topology.nodes()),
        ranks_(static_cast<int>(topology.members(node_).size())),
        leaders_(collectives::leaders_of(topology, between)) {}

  Phases build() {
    switch (spec_.collective) {
      case Collective::AllReduce:
        all_reduce();
        break;
      case Collective::AllGather:
        all_gather();
        break;
      case Collective::ReduceScatter:
        reduce_scatter();
        break;
      case Collective::Broadcast:
        broadcast();
        break;
      default:
        fail(ErrorCode::Internal, name(spec_.collective), " has no phases");
    }
    return std::move(made_);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  // Parts of a buffer of `count` elements, of which `sent` bytes cross the network from each rank that sends.
  std::vector<Slice> parts(std::uint64_t count, std::uint64_t sent) const {
    const std::uint64_t number = std::clamp<std::uint64_t>(sent / (kChunksPerPart * between_.chunk_bytes), 1,
                                                           std::clamp<std::uint64_t>(count, 1, kMostParts));
    std::vector<Slice> cut;
    for (std::uint64_t j = 0; j < number; ++j) cut.push_back(piece({Buffer::Output, 0, count}, number, j));
    return cut;
  }
  std::uint64_t bytes(std::uint64_t count) const { return count * item_size(spec_.dtype); }

  // One for each node: its rank at this place, or at another where it has fewer.
  std::vector<int> peers_at(int place) const {
    std::vector<int> peers;
    for (int v = 0; v < nodes_; ++v) {
      const std::vector<int>& all = topology_.members(v);
      peers.push_back(all[index(place) % all.size()]);
    }
    return peers;
  }

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

  int add(Phase phase, const SchedulePtr& schedule, const Scattered& where) {
    phase.schedule = scattered(*schedule, phase.spec.rank, where);
    made_.phases.push_back(std::move(phase));
    return static_cast<int>(made_.phases.size()) - 1;
  }
  // By the built-in table. But rank 0 of Bruck's all-gather receives into the Output, which is in pieces,
  // what others send from Scratch, which is not.
  static const Algorithm& algorithm(const CollectiveSpec& spec) {
    const Algorithm& chosen = select_algorithm(spec, false);
    if (chosen.collective != Collective::AllGather || chosen.name != std::string_view("bruck")) return chosen;
    return *find_algorithm(Collective::AllGather, "recursive_doubling");
  }
  int add_between(const Phase& phase, const Scattered& where, const std::vector<int>& peers) {
    return add(phase, among(*algorithm(phase.spec).build(phase.spec, between_), peers), where);
  }
  int add_inside(const Phase& phase, const Scattered& where) {
    return add(phase, find_algorithm(phase.spec.collective, "staged")->build(phase.spec, inside_), where);
  }
  // The same on all ranks of `number`.
  static std::vector<Pieces> on_all(int number, Pieces pieces) { return {index(number), std::move(pieces)}; }

  // While part j is between the nodes, part j + 1 gets there and part j - 1 comes from there.
  void all_reduce() {
    const auto leaders = static_cast<std::uint64_t>(leaders_);
    const std::vector<int> peers = peers_at(place_);
    int meeting = -1;  // of the part before
    const std::vector<Slice> all = parts(spec_.count, bytes(spec_.count / leaders));
    const auto gather = [&](int j) {
      const Slice& part = all[index(j)];
      const CollectiveSpec slices = slices_of(part, Collective::AllGather);
      Scattered where{{}, on_all(ranks_, {{part.offset, part.count}})};
      for (int k = 0; k < ranks_; ++k)
        where.input.push_back({{part.offset + block_offset(slices, k), block_count(slices, k)}});
      add_inside({true, slices, Buffer::Output, Buffer::Output, nullptr, j, meeting}, where);
    };
    const int number = static_cast<int>(all.size());
    for (int j = 0; j < number; ++j) {
      const Slice& part = all[index(j)];
      const CollectiveSpec slices = slices_of(part, Collective::ReduceScatter);
      const Pieces own = {{part.offset + block_offset(slices, place_), block_count(slices, place_)}};
      const int scatter = add_inside({true, slices, Buffer::Input, Buffer::Output, nullptr, j},
                                     {on_all(ranks_, {{part.offset, part.count}}), on_all(ranks_, own)});
      if (j > 0) gather(j - 1);
      if (place_ >= leaders_) continue;
      const CollectiveSpec slice = among_nodes(Collective::AllReduce, own[0].count);
      meeting = add_between({false, slice, Buffer::Output, Buffer::Output, nullptr, j, scatter},
                            {on_all(nodes_, own), on_all(nodes_, own)}, peers);
    }
    gather(number - 1);
  }
  // One slice for each leader, none for the other ranks of the node.
  CollectiveSpec slices_of(const Slice& part, Collective collective) const {
    CollectiveSpec spec = among_node(collective, 0);
    const auto leaders = static_cast<std::uint64_t>(leaders_);
    for (int r = 0; r < ranks_; ++r)
      spec.counts.push_back(r < leaders_ ? piece(part, leaders, static_cast<std::uint64_t>(r)).count : 0);
    return spec;
  }

  // Of the blocks of all ranks at a place, one for each node, that part.
  Pieces blocks_at(int place, const Slice& part) const {
    Pieces pieces;
    for (const int rank : peers_at(place))
      pieces.push_back({block_offset(spec_, rank) + part.offset, part.count});
    return pieces;
  }
  Pieces blocks_of_all(const Slice& part) const {
    Pieces all;
    for (int k = 0; k < ranks_; ++k) {
      const Pieces some = blocks_at(k, part);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  std::uint64_t crossing() const { return bytes(spec_.count) * static_cast<std::uint64_t>(nodes_ - 1); }

  void all_gather() {
    const std::vector<int> peers = peers_at(place_);
    int j = 0;
    for (const Slice& part : parts(spec_.count, crossing())) {
      const Pieces own = {{part.offset, part.count}};
      const CollectiveSpec blocks = among_nodes(Collective::AllGather, part.count);
      const int there = add_between({false, blocks, Buffer::Input, Buffer::Output, nullptr, j},
                                    {on_all(nodes_, own), on_all(nodes_, blocks_at(place_, part))}, peers);
      const CollectiveSpec slices =
          among_node(Collective::AllGather, part.count * static_cast<std::uint64_t>(nodes_));
      Scattered where{{}, on_all(ranks_, blocks_of_all(part))};
      for (int k = 0; k < ranks_; ++k) where.input.push_back(blocks_at(k, part));
      add_inside({true, slices, Buffer::Output, Buffer::Output, nullptr, j++, there}, where);
    }
  }

  void reduce_scatter() {
    const std::vector<int> peers = peers_at(place_);
    const auto nodes = static_cast<std::uint64_t>(nodes_);
    made_.scratch_count = spec_.count * nodes;
    int j = 0;
    for (const Slice& part : parts(spec_.count, crossing())) {
      const Pieces sums = {{part.offset * nodes, part.count * nodes}}, own = {{part.offset, part.count}};
      const CollectiveSpec slices = among_node(Collective::ReduceScatter, part.count * nodes);
      const int here = add_inside({true, slices, Buffer::Input, Buffer::Scratch, nullptr, j},
                                  {on_all(ranks_, blocks_of_all(part)), on_all(ranks_, sums)});
      const CollectiveSpec block = among_nodes(Collective::ReduceScatter, part.count);
      add_between({false, block, Buffer::Scratch, Buffer::Output, nullptr, j++, here},
                  {on_all(nodes_, sums), on_all(nodes_, own)}, peers);
    }
  }

  void broadcast() {
    made_.one_way = true;
    const std::vector<int> peers = peers_at(topology_.place(spec_.root));
    const int leader = peers[index(node_)];
    int j = 0;
    for (const Slice& part : parts(spec_.count, bytes(spec_.count))) {
      const Pieces own = {{part.offset, part.count}};
      int there = -1;
      if (spec_.rank == leader) {
        CollectiveSpec chain = among_nodes(Collective::Broadcast, part.count);
        chain.root = topology_.node(spec_.root);
        there = add_between({false, chain, Buffer::Input, Buffer::Output, nullptr, j},
                            {on_all(nodes_, {}), on_all(nodes_, own)}, peers);
      }
      CollectiveSpec tree = among_node(Collective::Broadcast, part.count);
      tree.root = topology_.place(leader);
      add_inside({true, tree, Buffer::Input, Buffer::Output, nullptr, j++, there},
                 {on_all(ranks_, {}), on_all(ranks_, own)});
    }
  }

  const CollectiveSpec& spec_;
  const Topology& topology_;
  const Tuning &inside_, &between_;
  const int node_, place_, nodes_, ranks_, leaders_;
  Phases made_;
};

}  // namespace

bool has_phases(const CollectiveSpec& spec, const Topology& topology) {
  if (topology.nodes() == 1) return false;
  if (spec.collective == Collective::AllReduce || spec.collective == Collective::Broadcast) return true;
  const bool blocks =
      spec.collective == Collective::AllGather || spec.collective == Collective::ReduceScatter;
  return blocks && spec.counts.empty() && topology.even();
}

Phases phases_of(const CollectiveSpec& spec, const Topology& topology, const Tuning& inside,
                 const Tuning& between) {
  MPIGDR_CHECK(has_phases(spec, topology) && spec.size == topology.size());
  return PhaseWriter(spec, topology, inside, between).build();
}

}  // namespace mpigdr
