// The checker proves every builder right, in all modes and for many shapes.
#include <set>

#include "checker/simulation.hpp"
#include "collectives/selection_table.hpp"
#include "schedules.hpp"

using namespace mpi_gdr;
using unit::build;
using unit::expect_right;

namespace {

CollectiveSpec make(Collective collective, int size, std::uint64_t count, ReduceOp op = ReduceOp::Sum,
                    int root = 0) {
  return {collective, 0, size, root, collective == Collective::Barrier ? 0 : count, DataType::Float32, op};
}

std::string text(const ExpressionTable& table, ExpressionId id) {
  const Expression& expression = table[id];
  if (expression.operands.empty()) return expression.ranks.text();
  std::string all = "(";
  for (const ExpressionId operand : expression.operands) all += " " + text(table, operand);
  return all + " )";
}

std::string order_of_reduction(const unit::Group& group) {
  Simulation run(group.specs, group.schedules, {});
  run.run();
  std::string all;
  for (const Value& value : run.output(0, {Buffer::Output, 0, group.specs[0].count}))
    all += text(run.expressions(), value.expression) + "\n";
  return all;
}

// Chunks so small that counts that are quick to check have several lanes and chunks.
constexpr Tuning kFine{64, 3, 256};
// The defaults, but few large chunks of shared memory instead of thousands.
constexpr Tuning kCoarse{256 * 1024, 4, 16 << 20};

// Without native ones and `adaptive`, which joins two others.
template <typename Body>
void each_builder(Body body) {
  for (const Algorithm& algorithm : algorithms())
    if (!algorithm.native() && algorithm.name != std::string_view("adaptive")) body(algorithm);
}

// Sanitizers cover the builders' code with fewer group sizes.
int next_size(int p) { return p + (unit::kSanitized && p >= 5 ? 5 : 1); }
bool enough(int p) { return unit::kSanitized && p > 5; }

void check_large_groups(int first, int last) {
  if (unit::kSanitized) return;
  each_builder([=](const Algorithm& a) {
    for (int p = last; p >= first; --p) {
      const std::uint64_t count = p % 2 == 0 ? 1000003 : static_cast<std::uint64_t>(p) + 1;
      expect_right(build(a, make(a.collective, p, count, ReduceOp::Sum, p / 3), kCoarse));
    }
  });
}

CheckResult cost(Collective c, const char* algorithm, int p, std::uint64_t count, int root = 0) {
  const auto group = build(*find_algorithm(c, algorithm), make(c, p, count, ReduceOp::Sum, root));
  const CheckResult result = check(group.specs, group.schedules, {});
  CHECK(result.ok);
  return result;
}

bool same_steps(const Schedule& a, const Schedule& b) {
  const auto same = [](const Step& s, const Step& t) {
    return s.kind == t.kind && s.scale == t.scale && s.peer == t.peer && s.dst == t.dst &&
           s.first_source == t.first_source && s.source_count == t.source_count;
  };
  return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), same) &&
         a.sources == b.sources && a.staging_count == b.staging_count && a.rounds.size() == b.rounds.size();
}

}  // namespace

TEST(staged_fills_its_staging) {
  const std::uint64_t room = std::uint64_t{2} << 20;  // elements of a chunk, half of the staging
  for (const int p : {3, 4, 8})
    for (const std::uint64_t chunks : {1, 8}) {
      const CollectiveSpec spec =
          make(Collective::AllReduce, p, chunks * (room - room % (64 * static_cast<unsigned>(p))));
      const auto group = build(*find_algorithm(Collective::AllReduce, "staged"), spec,
                               {.staging_bytes = 2 * room * sizeof(float)});
      CHECK(group.schedules[0]->rounds.size() ==
            2 * chunks + 3);  // two for each chunk, and the way through the pipeline
    }
}

TEST(adaptive_is_zero_copy_and_staged) {
  for (const Algorithm& a : algorithms()) {
    if (a.name != std::string_view("adaptive")) continue;
    for (const int p : {1, 2, 5})
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::PreMulSum}) {
        CollectiveSpec spec =
            make(a.collective, p, 100003, reduces(a.collective) ? op : ReduceOp::Sum, p / 2);
        if (a.collective == Collective::AllToAll) {
          spec.send_counts = spec.recv_counts =
              std::vector<std::uint64_t>(static_cast<std::size_t>(p), spec.count);
          spec.count = 0;
        }
        const SchedulePtr both = a.build(spec, kFine);
        const SchedulePtr zero_copy = find_algorithm(a.collective, "zero_copy")->build(spec, kFine);
        const SchedulePtr staged = find_algorithm(a.collective, "staged")->build(spec, kFine);
        CHECK(same_steps(*both, *zero_copy));
        CHECK(both->staged ? same_steps(*both->staged, *staged) : p == 1 || same_steps(*both, *staged));
      }
  }
}

TEST(every_size_up_to_24) {
  each_builder([](const Algorithm& a) {
    for (int p = 1; p <= 24; p = next_size(p))
      for (const std::uint64_t count :
           {std::uint64_t{1}, static_cast<std::uint64_t>(p) + 1, std::uint64_t{1000003}})
        expect_right(build(a, make(a.collective, p, count, ReduceOp::Sum, p / 2), kCoarse));
  });
}

// Several tests, because the time limit is per test.
TEST(every_size_from_25_to_44) { check_large_groups(25, 44); }
TEST(every_size_from_45_to_52) { check_large_groups(45, 52); }
TEST(every_size_from_53_to_58) { check_large_groups(53, 58); }
TEST(every_size_from_59_to_64) { check_large_groups(59, 64); }

TEST(every_count_near_the_size) {
  each_builder([](const Algorithm& a) {
    for (const int p : {1, 2, 3, 4, 5, 7, 8, 12}) {
      if (enough(p)) break;
      for (std::uint64_t count = 0; count <= 3 * static_cast<unsigned>(p) + 1; ++count)
        expect_right(build(a, make(a.collective, p, count), Tuning{4, 16}));
    }
  });
}

TEST(lanes_and_chunks) {
  each_builder([](const Algorithm& a) {
    for (const int p : {2, 3, 4, 6, 9}) {
      if (enough(p)) break;
      for (const std::uint64_t count : {15, 16, 17, 33, 64, 100, 257, 999, 1500})
        for (const int lanes : {1, 2, kMaxLanes})
          expect_right(build(a, make(a.collective, p, count), Tuning{64, lanes, 8 * count}));
    }
  });
}

TEST(every_root) {
  each_builder([](const Algorithm& a) {
    if (!has_root(a.collective)) return;
    for (int p = 1; p <= 17; p = next_size(p))
      for (int root = 0; root < p; ++root)
        expect_right(build(a, make(a.collective, p, 131, ReduceOp::Sum, root), kFine));
  });
}

TEST(every_operation) {
  each_builder([](const Algorithm& a) {
    if (!reduces(a.collective)) return;
    for (int op = 0; op < kReduceOpCount; ++op)
      for (int p = 1; p <= 9; p = next_size(p))
        for (const std::uint64_t count : {0, 3, 200})
          expect_right(build(a, make(a.collective, p, count, static_cast<ReduceOp>(op), p - 1), kFine));
  });
}

TEST(uneven_blocks) {
  each_builder([](const Algorithm& a) {
    if (a.collective != Collective::AllGather && a.collective != Collective::ReduceScatter) return;
    for (int p = 1; p <= (unit::kSanitized ? 10 : 20); p = next_size(p))
      for (int pattern = 0; pattern < 6; ++pattern) {
        CollectiveSpec spec = make(a.collective, p, 12345, pattern % 2 ? ReduceOp::PreMulSum : ReduceOp::Sum);
        if (!reduces(a.collective)) spec.op = ReduceOp::Sum;
        for (int r = 0; r < p; ++r) {
          const std::uint64_t counts[] = {0,       r == p / 2 ? 1000u : 0u, r == 0 ? 0u : 7u, r * 31u % 5,
                                          40u + r, r % 3 ? 100u + r : 0u};
          spec.counts.push_back(counts[pattern]);
        }
        const auto group = build(a, spec, kFine);
        expect_right(group);
        // A rank that receives nothing may run ahead of those that it sends to.
        const bool some = *std::max_element(spec.counts.begin(), spec.counts.end()) > 0;
        const bool all = *std::min_element(spec.counts.begin(), spec.counts.end()) > 0;
        for (const auto& schedule : group.schedules)
          CHECK(a.shared || schedule->one_way == (p > 1 && some && !all));
      }
  });
}

TEST(uneven_blocks_of_large_groups) {
  each_builder([](const Algorithm& a) {
    if (a.collective != Collective::AllGather && a.collective != Collective::ReduceScatter) return;
    for (const int p : {31, 48, 63, 64}) {
      if (unit::kSanitized && p > 31) break;
      CollectiveSpec spec = make(a.collective, p, 0);
      for (int r = 0; r < p; ++r) spec.counts.push_back(static_cast<std::uint64_t>(r * 7919 % 11) * 1000);
      expect_right(build(a, spec));
    }
  });
}

TEST(selection_of_uneven_blocks) {
  CollectiveSpec spec = make(Collective::AllGather, 4, 0);
  spec.counts = {0, 0, 100, 0};
  CHECK(std::string(select_row(spec, false).algorithm->name) == "recursive_doubling");
  spec.counts = {1 << 20, 1 << 20, 1 << 20, (1 << 20) + 8};
  CHECK(std::string(select_row(spec, false).algorithm->name) == "ring");
  spec.counts = {1 << 20, 0, 0, 8};  // every step of a ring would wait for the one large block
  CHECK(std::string(select_row(spec, false).algorithm->name) == "recursive_doubling");
  spec.collective = Collective::ReduceScatter;
  CHECK(std::string(select_row(spec, false).algorithm->name) == "ring");
}

TEST(huge_counts_cost_no_more) {
  each_builder([](const Algorithm& a) {
    for (const int p : {2, 3, 8}) {
      const auto group = build(a, make(a.collective, p, std::uint64_t{1} << 40),
                               Tuning{std::uint64_t{1} << 36, 4, std::uint64_t{1} << 38});
      expect_right(group);
      CHECK(group.schedules[0]->steps.size() < 20000);
    }
  });
}

TEST(long_blocks_of_an_all_to_all_travel_one_after_the_other) {
  const Algorithm& pairwise = *find_algorithm(Collective::AllToAll, "pairwise");
  constexpr std::uint64_t kOneLane = std::uint64_t{4} << 20;  // bytes
  for (const int p : {2, 3, 5, 8}) {
    const auto group = build(pairwise, make(Collective::AllToAll, p, kOneLane / 4), {});  // 0 to 8 MiB
    expect_right(group);
    for (const SchedulePtr& schedule : group.schedules)
      for (std::size_t lane = 1; lane < schedule->lanes.size(); ++lane)
        for (std::uint32_t r = 0; r < schedule->lanes[lane].round_count; ++r)
          for (const Step& step : schedule->steps_of(schedule->rounds[schedule->lanes[lane].first_round + r]))
            CHECK((step.kind == StepKind::Recv ? step.dst : schedule->source(step)).count * 4 < kOneLane);
  }
}

TEST(an_all_to_all_beyond_its_chunks_goes_on_by_messages) {
  const Algorithm& staged = *find_algorithm(Collective::AllToAll, "staged");
  for (const int p : {2, 3, 8}) {
    const auto group = build(staged, make(Collective::AllToAll, p, std::uint64_t{1} << 40), {});
    expect_right(group);
    CHECK(group.schedules[0]->messages && group.schedules[0]->steps.size() < 40000);
  }
  CHECK(!build(staged, make(Collective::AllToAll, 3, 1000000), {}).schedules[0]->messages);
}

TEST(chunk_size_is_respected) {
  const Algorithm& ring = *find_algorithm(Collective::AllReduce, "ring");
  const auto group = build(ring, make(Collective::AllReduce, 4, 1 << 20), Tuning{65536, 4});
  CHECK(group.schedules[0]->lanes.size() == 4);
  for (const Step& step : group.schedules[0]->steps)
    if (step.kind == StepKind::Send) CHECK(group.schedules[0]->source(step).count * 4 <= 65536 + 256);
}

TEST(lane_count_is_equal_on_all_ranks) {
  each_builder([](const Algorithm& a) {
    for (const std::uint64_t count : {0, 5, 1000}) {
      const auto group = build(a, make(a.collective, 7, count, ReduceOp::Sum, 2), kFine);
      for (const auto& schedule : group.schedules)
        CHECK(schedule->lanes.size() == group.schedules[0]->lanes.size());
    }
  });
}

TEST(one_way_only_where_a_rank_may_run_ahead) {
  each_builder([](const Algorithm& a) {
    const bool one_way = has_root(a.collective) && !a.shared;  // all ranks reuse shared memory
    CHECK(build(a, make(a.collective, 4, 10)).schedules[0]->one_way == one_way);
  });
}

TEST(a_fold_in_another_order_is_found) {
  int found = 0;
  each_builder([&](const Algorithm& a) {
    if (!reduces(a.collective) || a.two_level) return;
    auto group = build(a, make(a.collective, 4, 1000));
    CHECK(group.schedules[0]->ordered == a.ordered);
    for (SchedulePtr& schedule : group.schedules) {
      Schedule claims = *schedule;
      claims.ordered = claims.flat = true;
      schedule = std::make_shared<const Schedule>(std::move(claims));
    }
    const CheckResult result = check(group.specs, group.schedules);
    CHECK(result.ok == a.ordered);
    if (!a.ordered) CHECK_CONTAINS(result.error, "folded in another order than that of ranks");
    found += !a.ordered;
  });
  CHECK(found >= 6);
}

TEST(costs_match_the_formulas) {
  const CheckResult doubling = cost(Collective::AllReduce, "recursive_doubling", 8, 1000);
  CHECK(doubling.steps == 3 && doubling.elements_sent == 8 * 3 * 1000 &&
        doubling.elements_reduced == 8 * 3 * 1000);
  CHECK(cost(Collective::AllReduce, "recursive_doubling", 15, 10).steps == 5);
  const CheckResult ring = cost(Collective::AllReduce, "ring", 5, 1000);
  CHECK(ring.steps == 8 && ring.elements_sent == 8 * 1000 && ring.elements_reduced == 4 * 1000);
  CHECK(cost(Collective::Broadcast, "binomial", 64, 10).steps == 6);
  CHECK(cost(Collective::Broadcast, "chain", 6, 10).steps == 5);
  CHECK(cost(Collective::AllGather, "recursive_doubling", 33, 10).steps == 6);
  CHECK(cost(Collective::AllGather, "ring", 33, 10).elements_sent == 33 * 32 * 10);
  CHECK(cost(Collective::ReduceScatter, "pairwise", 6, 10).elements_reduced == 6 * 5 * 10);
  CHECK(cost(Collective::Barrier, "dissemination", 33, 0).steps == 6);
}

TEST(costs_of_the_algorithms_of_many_steps) {
  const CheckResult power = cost(Collective::AllReduce, "rabenseifner", 8, 800);
  CHECK(power.steps == 6 && power.elements_sent == 8 * 2 * 700 && power.elements_reduced == 8 * 700);
  CHECK(cost(Collective::AllReduce, "rabenseifner", 11, 800).steps == 8);
  for (const int root : {0, 1, 5, 10}) {
    const CheckResult reduce = cost(Collective::Reduce, "rabenseifner", 11, 800, root);
    // Fold, halving, and 400 elements in transit in each of three steps of the gather. The chain is one step
    // shorter where no pair is near the root.
    CHECK(reduce.steps == (root == 10 ? 6u : 7u));
    CHECK(reduce.elements_sent == 3 * 800 + 8 * 700 + 3 * 400);
    CHECK(reduce.elements_reduced == 3 * 800 + 8 * 700);
  }
  const CheckResult gathered = cost(Collective::AllGather, "bruck", 11, 10);
  CHECK(gathered.steps == 4 && gathered.messages == 11 * 4 && gathered.elements_sent == 11 * 10 * 10);
  const CheckResult exchanged = cost(Collective::AllToAll, "bruck", 8, 10);
  CHECK(exchanged.steps == 3 && exchanged.messages == 8 * 3 && exchanged.elements_sent == 8 * 3 * 40);
  for (const Collective c : {Collective::Gather, Collective::Scatter}) {
    const CheckResult linear = cost(c, "linear", 11, 10, 3);
    CHECK(linear.steps == 1 && linear.messages == 10 && linear.elements_sent == 100);
    const CheckResult tree = cost(c, "binomial", 16, 10);
    CHECK(tree.steps == 4 && tree.messages == 15 && tree.elements_sent == 10 * 16 / 2 * 4);
    CHECK(cost(c, "binomial", 16, 10, 3).messages == 16);  // one subtree in two messages
  }
}

// Stronger than the equal bits of docs/algorithms.md: the order of reduction is the same.
TEST(rabenseifner_rounds_like_recursive_doubling) {
  for (const int p : {2, 3, 7, 8, 12, 33}) {
    const CollectiveSpec spec = make(Collective::AllReduce, p, 97);
    const auto one = build(*find_algorithm(Collective::AllReduce, "recursive_doubling"), spec);
    const auto other = build(*find_algorithm(Collective::AllReduce, "rabenseifner"), spec);
    CHECK(order_of_reduction(one) == order_of_reduction(other));
    const auto ring = build(*find_algorithm(Collective::AllReduce, "ring"), spec);
    CHECK(p < 4 || order_of_reduction(one) != order_of_reduction(ring));
  }
}

TEST(bad_arguments_are_named) {
  const Algorithm& a = *find_algorithm(Collective::Broadcast, "binomial");
  CollectiveSpec spec = make(Collective::Broadcast, 4, 1, ReduceOp::Sum, 4);
  CHECK_THROWS(a.build(spec, {}), Error, "root=4");
  spec = make(Collective::Broadcast, 4, 1);
  spec.rank = -1;
  CHECK_THROWS(a.build(spec, {}), Error, "rank=-1");
  CHECK_THROWS(a.build(make(Collective::Broadcast, 4, 1), Tuning{1, 17}), Error, "max_lanes=17");
  CHECK_THROWS(a.build(make(Collective::Broadcast, 4, 1), Tuning{0, 1}), Error, "chunk_bytes=0");
  CHECK_THROWS(a.build(make(Collective::Broadcast, 4, ~std::uint64_t{0}), {}), Error, "too large");
  CollectiveSpec uneven = make(Collective::AllGather, 4, 1);
  uneven.counts = {1, 2, 3};
  const Algorithm& gather = *find_algorithm(Collective::AllGather, "ring");
  CHECK_THROWS(gather.build(uneven, {}), Error, "all_gather: counts has 3 entries, expected size=4");
  uneven.counts = {1, 2, 3, ~std::uint64_t{0}};
  CHECK_THROWS(gather.build(uneven, {}), Error, "too large");
  spec = make(Collective::Broadcast, 4, 1);
  spec.counts = {1, 1, 1, 1};
  CHECK_THROWS(a.build(spec, {}), Error, "broadcast: counts has 4 entries");
  CollectiveSpec exchange = make(Collective::AllToAll, 3, 0);
  exchange.send_counts = {4, 4, 4};
  exchange.recv_counts = {4, 4, 5};
  const Algorithm& bruck = *find_algorithm(Collective::AllToAll, "bruck");
  CHECK_THROWS(bruck.build(exchange, {}), Error, "recv_counts[2]=5 where send_counts[0]=4");
  const Algorithm& all_to_all = *find_algorithm(Collective::AllToAll, "pairwise");
  CHECK_THROWS(all_to_all.build(make(Collective::AllToAll, 4, 0), {}), Error, "send_counts has 0 entries");
}

TEST(registry_has_each_name_once) {
  std::set<std::pair<Collective, std::string>> names;
  for (const Algorithm& a : algorithms()) {
    CHECK(names.emplace(a.collective, a.name).second);
    CHECK(find_algorithm(a.collective, a.name) == &a);
    CHECK(a.native() == (std::string(a.name) == "native"));
  }
  CHECK(find_algorithm(Collective::AllReduce, "binomial") == nullptr);
}

UNIT_MAIN()
