// Algorithms for ranks on several nodes: right for placements of every kind, little data crosses the network,
// and all leaders share it.
#include "collectives/selection_table.hpp"
#include "schedules.hpp"

using namespace mpi_gdr;
using unit::build;
using unit::expect_right;

namespace {

// Nodes that are equal, unequal, of one rank, interleaved, in any order.
const std::vector<std::vector<int>> kPlacements = {
    {0, 0, 1, 1},          {0, 0, 0, 1, 1, 1},
    {0, 0, 1, 1, 2, 2},    {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
    {0, 1, 0, 1},          {0, 1, 2, 0, 1, 2, 0, 1, 2},
    {0, 0, 0, 1},          {7, 3, 3},
    {0, 1, 1, 1, 1, 1},    {0, 1, 1, 2, 2, 2, 3, 3, 3, 3},
    {2, 2, 2, 0, 1, 2, 0}, {5, 5, 5},
    {0, 1, 2, 3, 4},
};

std::vector<std::vector<int>> placements() {
  std::vector<std::vector<int>> all = kPlacements;
  if (unit::kSanitized) {  // proofs are fifteen times slower
    std::erase_if(all, [](const auto& nodes) { return nodes.size() > 5; });
    return all;
  }
  std::mt19937 random(5);
  for (int i = 0; i < 8; ++i) {
    std::vector<int> nodes(2 + random() % 20);
    const unsigned most = 1 + random() % 6;
    for (int& node : nodes) node = static_cast<int>(random() % most);
    all.push_back(nodes);
  }
  return all;
}

CollectiveSpec make(Collective collective, const std::vector<int>& nodes, std::uint64_t count) {
  CollectiveSpec spec{.collective = collective, .size = static_cast<int>(nodes.size())};
  spec.count = collective == Collective::Barrier ? 0 : count;
  spec.dtype = DataType::Float32;
  spec.topology = std::make_shared<const Topology>(nodes);
  return spec;
}

template <typename Body>
void each(Body body) {
  for (const Algorithm& a : algorithms())
    if (a.two_level)
      for (const std::vector<int>& nodes : placements()) body(a, nodes);
}

const Tuning kFine[] = {{64, 3, 256},
                        {.chunk_bytes = 64, .max_lanes = 3, .staging_bytes = 256, .node_shares = true}};

// Elements that each rank sends to other nodes.
std::map<int, std::uint64_t> crossing(const unit::Group& group) {
  std::map<int, std::uint64_t> elements;
  const Topology& topology = *group.specs[0].topology;
  for (int r = 0; r < topology.size(); ++r)
    for (const Step& step : group.schedules[r]->steps)
      if (step.kind == StepKind::Send && topology.node(step.peer) != topology.node(r))
        elements[r] += group.schedules[r]->source(step).count;
  return elements;
}

// Nodes of `each` consecutive ranks.
std::vector<int> even(int nodes, int each) {
  std::vector<int> all;
  for (int r = 0; r < nodes * each; ++r) all.push_back(r / each);
  return all;
}

std::uint64_t total(const std::map<int, std::uint64_t>& elements) {
  std::uint64_t all = 0;
  for (const auto& [rank, count] : elements) all += count;
  return all;
}

}  // namespace

TEST(nodes_are_numbered_by_their_lowest_ranks) {
  const Topology t({9, 4, 9, 4, 4, 1});
  CHECK(t.size() == 6 && t.nodes() == 3 && t.min_node_size() == 1 && !t.even() && t.two_level());
  CHECK(t.node(0) == 0 && t.node(1) == 1 && t.node(4) == 1 && t.node(5) == 2);
  CHECK((t.members(1) == std::vector<int>{1, 3, 4}));
  CHECK(t.place(0) == 0 && t.place(2) == 1 && t.place(4) == 2 && t.place(5) == 0);
  CHECK(Topology({0, 0, 1, 1}).even());
  CHECK(!Topology({0, 0}).two_level() && !Topology({0, 1}).two_level());
  CHECK(Topology({0, 0}).id() != Topology({0, 0}).id());
  CHECK_THROWS(Topology({}), Error, "no ranks");
}

TEST(every_placement_and_count) {
  each([](const Algorithm& a, const std::vector<int>& nodes) {
    for (const std::uint64_t count : {0, 1, 2, 5, 17, 64, 131, 1000, 100003}) {
      if (nodes.size() > 9 && count % 131 > 1) continue;  // proofs for many ranks are slow
      for (Tuning tuning : kFine) {
        if (count > 1000) tuning = {.node_shares = tuning.node_shares};
        expect_right(build(a, make(a.collective, nodes, count), tuning));
      }
    }
  });
}

// Each node decides for itself how its ranks communicate.
TEST(nodes_that_share_memory_among_nodes_that_do_not) {
  each([](const Algorithm& a, const std::vector<int>& nodes) {
    for (const std::uint64_t count : {1, 131, 1000}) {
      const CollectiveSpec spec = make(a.collective, nodes, count);
      unit::Group group = build(a, spec, kFine[0]);
      const unit::Group shared = build(a, spec, kFine[1]);
      for (std::size_t r = 0; r < nodes.size(); ++r)
        if (spec.topology->node(static_cast<int>(r)) % 2) group.schedules[r] = shared.schedules[r];
      expect_right(group);
    }
  });
}

// One message from each rank to each other node, unless a block is long.
TEST(short_blocks_of_an_all_to_all_travel_together) {
  const Algorithm& algorithm = *find_algorithm(Collective::AllToAll, "two_level");
  for (const std::vector<int>& nodes : placements()) {
    if (nodes.size() > 12) continue;
    for (const std::uint64_t count : {3, 1000}) {  // 1000: some blocks are long
      const CollectiveSpec spec = make(Collective::AllToAll, nodes, count);
      for (const bool shares : {false, true}) {
        const unit::Group group = build(algorithm, spec, {.node_shares = shares});
        expect_right(group);
        for (std::size_t r = 0; r < nodes.size(); ++r) {
          std::uint64_t messages = 0, longer = 0;
          for (std::size_t to = 0; to < nodes.size(); ++to)
            longer += nodes[to] != nodes[r] && group.specs[r].send_counts[to] > 1024;
          for (const Step& step : group.schedules[r]->steps)
            messages += step.kind == StepKind::Send && nodes[static_cast<std::size_t>(step.peer)] != nodes[r];
          // A rank of the smallest node serves several receivers of each other node.
          const auto most =
              static_cast<std::uint64_t>(spec.topology->max_node_size() / spec.topology->min_node_size() + 1);
          CHECK(messages <= longer + static_cast<std::uint64_t>(spec.topology->nodes() - 1) *
                                         (spec.topology->even() ? 1 : most));
        }
      }
    }
  }
}

TEST(counts_of_an_all_to_all_that_do_not_fit_are_refused) {
  const Algorithm& algorithm = *find_algorithm(Collective::AllToAll, "two_level");
  std::vector<CollectiveSpec> specs = unit::specs_for(make(Collective::AllToAll, {0, 0, 1, 1}, 8));
  CollectiveSpec none = specs[1];
  none.node_counts.clear();
  CHECK_THROWS(algorithm.build(none, {}), Error, "node_counts has 0 entries, expected 8");
  specs[1].node_counts[1] = 99;  // from rank 0 to rank 1
  CHECK_THROWS(algorithm.build(specs[1], {}), Error, "rank 0 sends 99 elements to this rank, where");
}

TEST(every_operation) {
  each([](const Algorithm& a, const std::vector<int>& nodes) {
    if (!reduces(a.collective)) return;
    for (const ReduceOp op : {ReduceOp::Avg, ReduceOp::PreMulSum, ReduceOp::Max}) {
      CollectiveSpec spec = make(a.collective, nodes, 257);
      spec.op = op;
      for (const Tuning& tuning : kFine) expect_right(build(a, spec, tuning));
    }
  });
}

TEST(every_root) {
  each([](const Algorithm& a, const std::vector<int>& nodes) {
    if (!has_root(a.collective)) return;
    for (int root = 0; root < static_cast<int>(nodes.size()); ++root) {
      CollectiveSpec spec = make(a.collective, nodes, 131);
      spec.root = root;
      for (const Tuning& tuning : kFine) expect_right(build(a, spec, tuning));
    }
  });
}

TEST(uneven_blocks) {
  each([](const Algorithm& a, const std::vector<int>& nodes) {
    if (a.collective != Collective::AllGather && a.collective != Collective::ReduceScatter) return;
    CollectiveSpec spec = make(a.collective, nodes, 0);
    for (std::size_t r = 0; r < nodes.size(); ++r) spec.counts.push_back((r * 37) % 5 * 40);
    for (const Tuning& tuning : kFine) expect_right(build(a, spec, tuning));
  });
}

TEST(each_byte_crosses_the_network_as_rarely_as_it_can) {
  const std::vector<int> nodes = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};  // N = 3, m = 4
  const std::uint64_t n = 120000, nodes_of = 3, ranks = 12;
  const auto cost = [&](Collective collective, std::uint64_t count) {
    return crossing(build(*find_algorithm(collective, "two_level"), make(collective, nodes, count)));
  };
  // A ring among the nodes sends 2 (N-1)/N of the data from each node, divided among its leaders.
  CHECK(total(cost(Collective::AllReduce, n)) <= nodes_of * (2 * n * 2 / 3) + ranks * 64);
  CHECK(total(cost(Collective::ReduceScatter, n / ranks)) == (nodes_of - 1) * n);
  CHECK(total(cost(Collective::AllGather, n / ranks)) == (nodes_of - 1) * n);
  CHECK(total(cost(Collective::Broadcast, n)) == (nodes_of - 1) * n);
  for (const Collective collective :
       {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
    const auto by_rank = cost(collective, collective == Collective::AllReduce ? n : n / ranks);
    CHECK(by_rank.size() == ranks);  // every rank leads
    std::uint64_t least = n, most = 0;
    for (const auto& [rank, count] : by_rank) {
      least = std::min(least, count);
      most = std::max(most, count);
    }
    CHECK(most - least <= 4 * 64);
  }
}

TEST(every_number_of_leaders) {
  const Algorithm& algorithm = *find_algorithm(Collective::AllReduce, "two_level");
  for (const std::vector<int>& nodes : placements()) {
    CollectiveSpec spec = make(Collective::AllReduce, nodes, 0);
    const Topology& topology = *spec.topology;
    for (int leaders = 1; leaders <= topology.min_node_size() + 1; ++leaders) {
      Tuning tuning = kFine[leaders % 2];
      tuning.leaders = leaders;
      for (int op = 0; op < kReduceOpCount; ++op)
        for (const std::uint64_t count : {0, 1, 5, 257}) {
          spec.op = static_cast<ReduceOp>(op);
          spec.dtype = op >= static_cast<int>(ReduceOp::BitAnd) ? DataType::Int32 : DataType::Float32;
          spec.count = count;
          expect_right(build(algorithm, spec, tuning));
        }
      spec.op = ReduceOp::Sum;
      spec.count = 100003;
      tuning = {.leaders = leaders};
      const auto group = build(algorithm, spec, tuning);
      expect_right(group);
      if (topology.nodes() == 1) continue;
      const auto by_rank = crossing(group);
      const int lead = std::min(leaders, topology.min_node_size());
      CHECK(by_rank.size() == static_cast<std::size_t>(lead * topology.nodes()));
      for (const auto& [rank, count] : by_rank) CHECK(topology.place(rank) < lead && count > 0);
    }
  }
  const CollectiveSpec spec = make(Collective::AllReduce, {0, 0, 1, 1}, 8);
  CHECK_THROWS(algorithm.build(spec, {.leaders = -1}), Error, "leaders=-1, expected at least 0");
}

// Chunks of different lanes differ by some elements, which must not select different algorithms.
TEST(lanes_have_the_same_rounds) {
  const struct {
    int nodes, each;
    std::uint64_t chunk_bytes, count;
  } cases[] = {{4, 2, 16 << 10, 98000}, {8, 2, 32 << 10, 392913}, {16, 2, 128 << 10, 8388274}};
  for (const auto& c : cases) {
    for (const int leaders : {0, 1}) {
      const auto group = build(
          *find_algorithm(Collective::AllReduce, "two_level"),
          make(Collective::AllReduce, even(c.nodes, c.each), c.count),
          Tuning{
              .chunk_bytes = c.chunk_bytes, .max_lanes = 4, .staging_bytes = 256 << 10, .leaders = leaders});
      expect_right(group);
      for (const SchedulePtr& schedule : group.schedules)
        for (const Lane& lane : schedule->lanes) CHECK(lane.round_count == schedule->lanes[0].round_count);
    }
  }
}

TEST(scratch_of_an_all_reduce_is_bounded) {
  // Long slices have longer chunks, not more of them. A leader receives one chunk from each rank.
  const struct {
    int nodes, each, leaders;
    std::uint64_t most;
  } cases[] = {{192, 8, 0, 64}, {2, 128, 0, 64}, {8, 128, 0, 64}, {192, 8, 1, 64}, {8, 128, 1, 128}};
  for (const auto& [nodes, each, leaders, most] : cases) {
    if (unit::kSanitized && nodes * each > 256) continue;
    const CollectiveSpec spec =
        make(Collective::AllReduce, even(nodes, each), std::uint64_t{1} << 28);  // 1 GiB
    for (const bool shares : {false, true}) {
      const Tuning tuning{.node_shares = shares, .leaders = leaders};
      const SchedulePtr schedule = find_algorithm(Collective::AllReduce, "two_level")->build(spec, tuning);
      CHECK(schedule->scratch_count * 4 <= most << 20);
      CHECK(schedule->staging_count * 4 <= tuning.staging_bytes);
    }
  }
}

TEST(only_groups_of_both_kinds_of_neighbours_choose_it) {
  const SelectionTable& table = default_table();
  const std::pair<std::vector<int>, bool> cases[] = {
      {{0, 0, 1, 1}, true},
      {{0, 0, 1}, true},
      {{0, 0, 0, 0}, false},
      {{0, 1, 2, 3}, false},
      {{0, 0, 1, 2, 3, 4}, false},                  // few ranks have a neighbour on their node
      {{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2}, false}};  // the last node limits all to one leader
  for (const auto& [nodes, expected] : cases)
    for (const Collective collective :
         {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
      const Algorithm& chosen =
          *select_row(make(collective, nodes, 1 << 24), false, Reach::None, table).algorithm;
      CHECK(chosen.two_level == expected);
    }
  CollectiveSpec spec = make(Collective::AllReduce, {0, 0, 1, 1}, 8);
  spec.size = 3;
  CHECK_THROWS(find_algorithm(Collective::AllReduce, "two_level")->build(spec, {}), Error, "topology has 4");
}

UNIT_MAIN()
