// Staged schedules with mirrors, with the buffers of all, no or some ranks reachable.
#include "in_place.hpp"
#include "schedules.hpp"

using namespace mpi_gdr;
using unit::build;
using unit::expect_right;
using unit::Group;

namespace {

constexpr Tuning kInPlace{.chunk_bytes = 64, .max_lanes = 3, .staging_bytes = 2048, .in_place = true};

Group rewritten(const Group& group, const Reached& reached) {
  Group out{group.specs, {}};
  for (std::size_t r = 0; r < group.schedules.size(); ++r)
    out.schedules.push_back(in_place(*group.schedules[r], static_cast<int>(r), reached));
  return out;
}

template <typename F>
void for_each_group(F f) {
  for (const Collective collective :
       {Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter, Collective::AllGather})
    for (int size = 2; size <= 6; ++size)
      for (const std::uint64_t count : {1u, 7u, 100u, 3000u})
        for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PreMulSum}) {
          if (!reduces(collective) && op != ReduceOp::Sum) continue;
          const int root = has_root(collective) ? size / 2 : 0;
          const CollectiveSpec spec{collective, 0, size, root, count, DataType::Float32, op};
          f(build(*find_algorithm(collective, "staged"), spec, kInPlace), size);
        }
}

}  // namespace

TEST(right_with_any_peer) {
  const auto none = [](int) { return false; };
  const auto all = [](int) { return true; };
  const auto odd = [](int r) { return r % 2 == 1; };
  const auto first = [](int r) { return r == 0; };
  for_each_group([&](const Group& group, int size) {
    expect_right(group);
    expect_right(rewritten(group, reached_by(size, none, none)));
    expect_right(rewritten(group, reached_by(size, all, all)));
    expect_right(rewritten(group, reached_by(size, odd, odd)));
    expect_right(rewritten(group, reached_by(size, odd, first)));
    expect_right(rewritten(group, reached_by(size, first, all)));
    expect_right(rewritten(group, reached_by(size, none, odd)));
  });
}

// Except values that a factor changes, and the root's.
TEST(nothing_goes_through_staging_where_all_are_reached) {
  const auto all = [](int) { return true; };
  for_each_group([&](const Group& group, int size) {
    const CollectiveSpec& spec = group.specs[0];
    if (spec.op == ReduceOp::PreMulSum || has_root(spec.collective)) return;
    for (const SchedulePtr& schedule : rewritten(group, reached_by(size, all, all)).schedules) {
      for (const Step& step : schedule->steps) {
        CHECK(step.dst.count == 0 || step.dst.buffer == Buffer::Output);
        for (std::uint32_t k = 0; k < step.source_count; ++k)
          CHECK(schedule->source(step, k).buffer != Buffer::Staging);
      }
    }
  });
}

// Other ranks read in place, and the user may overwrite the buffers after the operation: the checker must
// notice if the last synchronisation is missing.
TEST(the_last_synchronisation_is_needed) {
  const auto all = [](int) { return true; };
  for (const Collective collective :
       {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
    const CollectiveSpec spec{.collective = collective, .size = 3, .count = 100};
    Group group =
        rewritten(build(*find_algorithm(collective, "staged"), spec, kInPlace), reached_by(3, all, all));
    std::size_t waits = 0;
    for (const Step& step : group.schedules[1]->steps) waits += step.kind == StepKind::Wait;
    std::size_t seen = 0;
    group.schedules[1] =
        unit::rewrite(*group.schedules[1], [&](std::size_t, Step& step, std::vector<Slice>&) {
          return step.kind != StepKind::Wait || ++seen <= waits - 2;
        });
    const CheckResult result = check(group.specs, group.schedules);
    CHECK(!result.ok && result.error.find("may have ended") != std::string::npos);
  }
}

UNIT_MAIN()
