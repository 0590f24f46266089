// Every builder is proved right by the checker, in all modes, for many shapes; selection is a function of its
// table.
#include <limits>
#include <set>

#include "common/error.hpp"
#include "schedules.hpp"

using namespace mpigdr;
using unit::build;
using unit::expect_right;

namespace {

CollectiveSpec make(Collective collective, int size, std::uint64_t count, ReduceOp op = ReduceOp::Sum,
                    int root = 0) {
  CollectiveSpec spec;
  spec.collective = collective;
  spec.size = size;
  spec.count = collective == Collective::Barrier ? 0 : count;
  spec.dtype = DataType::Float32;
  spec.op = op;
  spec.root = root;
  return spec;
}

bool reduces(Collective c) {
  return c == Collective::AllReduce || c == Collective::Reduce || c == Collective::ReduceScatter;
}
bool rooted(Collective c) {
  return c == Collective::Broadcast || c == Collective::Reduce || c == Collective::Gather ||
         c == Collective::Scatter;
}

// Small chunks, so that lanes and chunks are in use at counts that are quick to check.
constexpr Tuning kFine{64, 3};

template <typename Body>
void each_builder(Body body) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.build) body(algorithm);
}

void check_large_groups(int first, int last) {
  each_builder([=](const Algorithm& a) {
    for (int p = first; p <= last; ++p) {
      const std::uint64_t count = p % 2 == 0 ? 1000003 : static_cast<std::uint64_t>(p) + 1;
      expect_right(build(a, make(a.collective, p, count, ReduceOp::Sum, p / 3)));
    }
  });
}

}  // namespace

TEST(every_size_up_to_24) {
  each_builder([](const Algorithm& a) {
    for (int p = 1; p <= 24; ++p)
      for (const std::uint64_t count :
           {std::uint64_t{1}, static_cast<std::uint64_t>(p) + 1, std::uint64_t{1000003}})
        expect_right(build(a, make(a.collective, p, count, ReduceOp::Sum, p / 2)));
  });
}

// In several tests, for the sanitizers' sake: the time limit is one test's.
TEST(every_size_from_25_to_44) { check_large_groups(25, 44); }
TEST(every_size_from_45_to_52) { check_large_groups(45, 52); }
TEST(every_size_from_53_to_58) { check_large_groups(53, 58); }
TEST(every_size_from_59_to_64) { check_large_groups(59, 64); }

TEST(every_count_near_the_size) {
  each_builder([](const Algorithm& a) {
    for (const int p : {1, 2, 3, 4, 5, 7, 8, 12})
      for (std::uint64_t count = 0; count <= 3 * static_cast<unsigned>(p) + 1; ++count)
        expect_right(build(a, make(a.collective, p, count), Tuning{4, 16}));
  });
}

TEST(lanes_and_chunks) {
  each_builder([](const Algorithm& a) {
    for (const int p : {2, 3, 4, 6, 9})
      for (const std::uint64_t count : {15, 16, 17, 33, 64, 100, 257, 999, 1500})
        for (const int lanes : {1, 2, kMaxLanes})
          expect_right(build(a, make(a.collective, p, count), Tuning{64, lanes}));
  });
}

TEST(every_root) {
  each_builder([](const Algorithm& a) {
    if (!rooted(a.collective)) return;
    for (int p = 1; p <= 17; ++p)
      for (int root = 0; root < p; ++root)
        expect_right(build(a, make(a.collective, p, 131, ReduceOp::Sum, root), kFine));
  });
}

TEST(every_operation) {
  each_builder([](const Algorithm& a) {
    if (!reduces(a.collective)) return;
    for (int op = 0; op < kReduceOpCount; ++op)
      for (int p = 1; p <= 9; ++p)
        for (const std::uint64_t count : {0, 3, 200})
          expect_right(build(a, make(a.collective, p, count, static_cast<ReduceOp>(op), p - 1), kFine));
  });
}

TEST(huge_counts_cost_no_more) {
  each_builder([](const Algorithm& a) {
    for (const int p : {2, 3, 8}) {
      const auto group =
          build(a, make(a.collective, p, std::uint64_t{1} << 40), Tuning{std::uint64_t{1} << 36, 4});
      expect_right(group);
      CHECK(group.schedules[0]->steps.size() < 20000);
    }
  });
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
    CHECK(build(a, make(a.collective, 4, 10)).schedules[0]->one_way == rooted(a.collective));
  });
}

TEST(costs_match_the_formulas) {
  const auto cost = [](Collective c, const char* algorithm, int p, std::uint64_t count) {
    const auto group = build(*find_algorithm(c, algorithm), make(c, p, count));
    const CheckResult result = check(group.specs, group.schedules, {});
    CHECK(result.ok);
    return result;
  };
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
  const Algorithm& all_to_all = *find_algorithm(Collective::AllToAll, "pairwise");
  CHECK_THROWS(all_to_all.build(make(Collective::AllToAll, 4, 0), {}), Error, "send_counts has 0 entries");
}

TEST(registry_has_each_name_once) {
  std::set<std::pair<Collective, std::string>> names;
  for (const Algorithm& a : algorithms()) {
    CHECK(names.emplace(a.collective, a.name).second);
    CHECK(find_algorithm(a.collective, a.name) == &a);
    CHECK((a.build == nullptr) == (std::string(a.name) == "native"));
  }
  CHECK(find_algorithm(Collective::AllReduce, "binomial") == nullptr);
}

TEST(selection_agrees_with_its_table) {
  for (const int p : {1, 2, 4, 8, 31, 32, 1000})
    for (int c = 0; c < kCollectiveCount; ++c) {
      const auto collective = static_cast<Collective>(c);
      std::uint64_t expected_from = 0;
      for (const SelectionRange& range : selection_table(p)) {
        if (range.collective != collective) continue;
        CHECK(range.from_bytes == expected_from);
        expected_from = range.to_bytes;
        CollectiveSpec spec = make(collective, p, 0);
        spec.dtype = DataType::UInt8;
        spec.count = range.from_bytes;
        CHECK(select_algorithm(spec, false).name == range.algorithm);
        spec.count = range.to_bytes - 1;
        CHECK(select_algorithm(spec, false).name == range.algorithm);
      }
      CHECK(expected_from == std::numeric_limits<std::uint64_t>::max());
    }
}

TEST(native_reductions_are_a_default_for_integers_only) {
  CollectiveSpec spec = make(Collective::AllReduce, 4, 16);
  CHECK(std::string(select_algorithm(spec, true).name) == "recursive_doubling");
  spec.dtype = DataType::Int64;
  CHECK(std::string(select_algorithm(spec, true).name) == "native");
  CHECK(std::string(select_algorithm(spec, false).name) == "recursive_doubling");
  spec.op = ReduceOp::Avg;
  CHECK(std::string(select_algorithm(spec, true).name) == "recursive_doubling");
}

UNIT_MAIN()
