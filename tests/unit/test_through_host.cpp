// Schedules with messages through bounce memory are as right as the original ones and copy no data twice.
#include "schedule/through_host.hpp"
#include "schedules.hpp"

using namespace mpi_gdr;
using unit::build;
using unit::expect_right;
using unit::Group;

namespace {

void expect_right_through_host(const Group& group) {
  Group all = group, some = group;
  for (std::size_t r = 0; r < group.schedules.size(); ++r) {
    all.schedules[r] = through_host(*group.schedules[r]);
    if (r % 3 != 1) some.schedules[r] = all.schedules[r];
    for (const Step& step : all.schedules[r]->steps) {
      if (step.kind == StepKind::Send) CHECK(all.schedules[r]->source(step).buffer == Buffer::Bounce);
      if (step.kind == StepKind::Recv) CHECK(step.dst.buffer == Buffer::Bounce);
    }
    CHECK(all.schedules[r]->one_way == group.schedules[r]->one_way);
    CHECK(all.schedules[r]->lanes.size() == group.schedules[r]->lanes.size());
  }
  expect_right(all);
  expect_right(some);
}

std::size_t copies(const Schedule& schedule) {
  std::size_t count = 0;
  for (const Step& step : schedule.steps) count += step.kind == StepKind::Copy;
  return count;
}

}  // namespace

TEST(every_algorithm_on_every_small_group) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.native() || algorithm.shared || algorithm.collective == Collective::Barrier) continue;
    for (int size = 1; size <= 9; ++size)
      for (const std::uint64_t count : {1u, 5u, 64u}) {
        CollectiveSpec spec{algorithm.collective, 0, size, has_root(algorithm.collective) ? size / 2 : 0};
        spec.count = count;
        spec.dtype = DataType::Float32;
        if (algorithm.two_level) {
          std::vector<int> nodes;
          for (int r = 0; r < size; ++r) nodes.push_back(r / 2);
          spec.topology = std::make_shared<const Topology>(nodes);
        }
        for (const Tuning& tuning : {Tuning{}, Tuning{.chunk_bytes = 32, .max_lanes = 3}})
          expect_right_through_host(build(algorithm, spec, tuning));
      }
  }
}

TEST(what_is_sent_on_is_sent_from_where_it_arrived) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != Collective::AllGather || std::string(algorithm.name) != "ring") continue;
    const CollectiveSpec spec{.collective = Collective::AllGather, .size = 6, .count = 10};
    const Group group = build(algorithm, spec, Tuning{.max_lanes = 1});
    const SchedulePtr made = through_host(*group.schedules[2]);
    // Its own block once to the output and once for sending; the five others once each, on arrival.
    CHECK(copies(*made) == 7);
    CHECK(made->bounce_count == 30);
    return;
  }
  CHECK(!"there is a ring");
}

// An all_to_all longer than its chunks ends with messages.
TEST(a_schedule_on_shared_memory_stays_one) {
  const CollectiveSpec spec{.collective = Collective::AllToAll, .size = 5, .count = 1500};
  const Group group =
      build(*find_algorithm(Collective::AllToAll, "staged"), spec, Tuning{.staging_bytes = 128});
  CHECK(group.schedules[0]->shared && group.schedules[0]->messages);
  expect_right_through_host(group);
  const SchedulePtr made = through_host(*group.schedules[0]);
  CHECK(made->shared && made->staging_count == group.schedules[0]->staging_count);
}

UNIT_MAIN()
