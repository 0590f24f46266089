// The writer, and the checker: every way of breaking a schedule must be caught.
#include "checker/expression.hpp"
#include "checker/layout.hpp"
#include "schedules.hpp"

using namespace mpi_gdr;
using unit::build;
using unit::contains;
using unit::Edit;
using unit::Group;
using unit::rewrite;

namespace {

constexpr Tuning kFine{64, 3, 400};

Slice in(std::uint64_t offset, std::uint64_t count) { return {Buffer::Input, offset, count}; }
Slice out(std::uint64_t offset, std::uint64_t count) { return {Buffer::Output, offset, count}; }

CollectiveSpec make(Collective collective, int size, std::uint64_t count, ReduceOp op = ReduceOp::Sum) {
  return {.collective = collective, .size = size, .count = count, .dtype = DataType::Float32, .op = op};
}

void expect_error(const Group& group, const char* part, const CheckMode& mode = {}) {
  const CheckResult result = check(group.specs, group.schedules, mode);
  if (result.ok || !contains(result.error, part))
    throw std::runtime_error(std::string("expected '") + part + "', got '" + result.error + "'");
}

Group pair(Collective collective, std::uint64_t count,
           const std::function<void(int, ScheduleWriter&)>& body) {
  Group group{unit::specs_for(make(collective, 2, count)), {}};
  for (int r = 0; r < 2; ++r) {
    ScheduleWriter writer("by_hand");
    body(r, writer);
    group.schedules.push_back(writer.finish());
  }
  return group;
}

// Applies `edit` to one step of one rank at a time. An edit returns false if it does not apply; every one
// that applies must be caught. Returns the number of edits.
using Mutation = std::function<bool(const CollectiveSpec&, bool& keep, Step&, std::vector<Slice>&)>;
int expect_all_caught(const Group& group, const Mutation& mutation) {
  int applied = 0;
  for (std::size_t r = 0; r < group.schedules.size(); ++r)
    for (std::size_t target = 0; target < group.schedules[r]->steps.size(); ++target) {
      bool applicable = false;
      Group broken = group;
      broken.schedules[r] =
          rewrite(*group.schedules[r], [&](std::size_t number, Step& step, std::vector<Slice>& sources) {
            bool keep = true;
            if (number == target) applicable = mutation(group.specs[r], keep, step, sources);
            return keep;
          });
      if (!applicable) continue;
      ++applied;
      if (check(broken.specs, broken.schedules).ok)
        throw std::runtime_error(
            group.schedules[r]->algorithm + " of " + std::string(name(group.specs[r].collective)) +
            ": broken step " + std::to_string(target) + " of rank " + std::to_string(r) + " was not noticed");
    }
  return applied;
}

template <typename Body>
void each_group(Body body) {
  for (const Algorithm& a : algorithms())
    if (!a.native())
      for (const int p : {2, 3, 4, 5})
        for (const std::uint64_t count : {1, 50})
          body(a, build(a, make(a.collective, p, a.collective == Collective::Barrier ? 0 : count), kFine));
}

// A rank need not wait for a peer that it gets nothing from; staged algorithms let all wait for all.
bool may_await_less(const Algorithm& a, const CollectiveSpec& spec) {
  if (!a.shared || a.collective == Collective::Barrier) return false;
  if (a.collective == Collective::AllToAll) return true;
  return a.name != std::string("zero_copy") || spec.count < static_cast<unsigned>(spec.size);
}

}  // namespace

TEST(writer_drops_what_is_empty_and_keeps_lane_numbers) {
  ScheduleWriter writer("x");
  writer.lane();
  writer.round();
  writer.send(1, in(0, 0));
  writer.lane();
  writer.round();
  writer.round();
  writer.send(1, in(0, 4));
  writer.round();
  writer.recv(1, out(0, 0));
  writer.lane();
  const SchedulePtr s = writer.finish();
  CHECK(s->lanes.size() == 3);
  CHECK(s->lanes[0].round_count == 0 && s->lanes[1].round_count == 1 && s->lanes[2].round_count == 0);
  CHECK(s->rounds.size() == 1 && s->rounds[0].step_count == 1);
  CHECK(s->lanes[1].first_round == 0 && s->source(s->steps[0]) == in(0, 4));
}

TEST(writer_opens_the_first_lane_and_round) {
  ScheduleWriter writer("x");
  writer.copy(out(0, 1), in(0, 1));
  const SchedulePtr s = writer.finish();
  CHECK(s->lanes.size() == 1 && s->rounds.size() == 1 && s->steps.size() == 1);
}

TEST(writer_refuses_what_cannot_be_meant) {
  ScheduleWriter writer("x");
  CHECK_THROWS(writer.copy(out(0, 1), in(0, 2)), Error, "dst.count");
  CHECK_THROWS(writer.reduce(out(0, 1), {}), Error, "sources");
  for (int lane = 0; lane < kMaxLanes; ++lane) writer.lane();
  CHECK_THROWS(writer.lane(), Error, "more than 16 lanes");
}

TEST(writer_reserves_scratch) {
  ScheduleWriter writer("x");
  CHECK(writer.scratch(3) == (Slice{Buffer::Scratch, 0, 3}));
  CHECK(writer.scratch(2) == (Slice{Buffer::Scratch, 3, 2}));
  CHECK(writer.finish()->scratch_count == 5);
}

TEST(rank_sets) {
  RankSet set(3);
  CHECK(set.merge(RankSet(5)) == -1 && set.text() == "3,5");
  CHECK(set.merge(RankSet(4)) == -1 && set.text() == "3-5");
  CHECK(set.merge(RankSet(4)) == 4);
  CHECK(!set.complete(6));
  for (const int r : {0, 1, 2}) set.merge(RankSet(r));
  CHECK(set.complete(6) && !set.complete(7));
}

TEST(in_place_variants_are_the_same_memory) {
  CollectiveSpec spec = make(Collective::AllGather, 4, 10);
  spec.rank = 2;
  CHECK(Layout(spec, {}, true).resolve(in(1, 3)) == Layout(spec, {}, true).resolve(out(21, 3)));
  CHECK(!(Layout(spec, {}, false).resolve(in(1, 3)) == Layout(spec, {}, false).resolve(out(21, 3))));
  spec.collective = Collective::ReduceScatter;
  CHECK(Layout(spec, {}, true).resolve(out(1, 3)) == Layout(spec, {}, true).resolve(in(21, 3)));
}

TEST(dropped_steps_are_caught) {
  int applied = 0;
  each_group([&](const Algorithm& a, const Group& group) {
    applied += expect_all_caught(
        group, [&](const CollectiveSpec& spec, bool& keep, Step& step, std::vector<Slice>&) {
          if (step.kind == StepKind::Wait && may_await_less(a, spec)) return false;
          keep = false;
          return true;
        });
  });
  CHECK(applied > 1000);
}

TEST(swapped_peers_are_caught) {
  int applied = 0;
  each_group([&](const Algorithm&, const Group& group) {
    applied +=
        expect_all_caught(group, [](const CollectiveSpec& spec, bool&, Step& step, std::vector<Slice>&) {
          // A rank may learn of a peer's progress through a third one.
          if (step.peer < 0 || step.kind == StepKind::Wait) return false;
          step.peer = (step.peer + 1) % spec.size;
          return true;
        });
  });
  CHECK(applied > 1000);
}

TEST(wrong_slices_are_caught) {
  int applied = 0;
  each_group([&](const Algorithm& a, const Group& group) {
    if (a.collective == Collective::Barrier) return;  // its data has no meaning
    applied +=
        expect_all_caught(group, [](const CollectiveSpec&, bool&, Step& step, std::vector<Slice>& sources) {
          if (step.kind == StepKind::Signal || step.kind == StepKind::Wait) return false;
          if (sources.empty())
            ++step.dst.offset;
          else
            ++sources[0].offset;
          return true;
        });
    applied +=
        expect_all_caught(group, [](const CollectiveSpec&, bool&, Step& step, std::vector<Slice>& sources) {
          if (step.kind != StepKind::Send && step.kind != StepKind::Recv) return false;
          Slice& slice = step.kind == StepKind::Send ? sources[0] : step.dst;
          if (slice.count < 2) return false;
          --slice.count;
          return true;
        });
  });
  CHECK(applied > 1000);
}

TEST(another_order_of_reduction_is_caught) {
  // Each rank's sum would be right, but not the same expression as the others'.
  const Algorithm& a = *find_algorithm(Collective::AllReduce, "recursive_doubling");
  int applied = 0;
  for (const int p : {2, 4, 8})  // otherwise a pair's fold may swap on all ranks alike
    applied += expect_all_caught(build(a, make(Collective::AllReduce, p, 5)),
                                 [](const CollectiveSpec&, bool&, Step& step, std::vector<Slice>& sources) {
                                   if (step.kind != StepKind::Reduce) return false;
                                   std::swap(sources[0], sources[1]);
                                   return true;
                                 });
  CHECK(applied > 10);
}

TEST(swapped_messages_are_caught) {
  Group group = pair(Collective::AllGather, 2, [](int r, ScheduleWriter& w) {
    w.copy(out(2 * static_cast<unsigned>(r), 2), in(0, 2));
    const std::uint64_t first = r == 0 ? 1 : 0;
    w.send(1 - r, in(first, 1));
    w.send(1 - r, in(1 - first, 1));
    w.recv(1 - r, out(2 * static_cast<unsigned>(1 - r), 1));
    w.recv(1 - r, out(2 * static_cast<unsigned>(1 - r) + 1, 1));
  });
  expect_error(group, "instead of element 0 of rank 0");
}

TEST(missing_and_extra_scales_are_caught) {
  int applied = 0;
  for (const Algorithm& a : algorithms()) {
    if (a.native() || !reduces(a.collective)) continue;
    for (const ReduceOp op : {ReduceOp::Avg, ReduceOp::PreMulSum})
      for (const int p : {1, 2, 3, 4}) {
        const Group group = build(a, make(a.collective, p, 20, op), kFine);
        applied +=
            expect_all_caught(group, [](const CollectiveSpec&, bool&, Step& step, std::vector<Slice>&) {
              if (step.scale == Scale::None) return false;
              step.scale = Scale::None;
              return true;
            });
      }
    for (const int p : {2, 3})
      applied += expect_all_caught(build(a, make(a.collective, p, 20), kFine),
                                   [](const CollectiveSpec&, bool&, Step& step, std::vector<Slice>&) {
                                     if (step.kind != StepKind::Reduce) return false;
                                     step.scale = Scale::Average;
                                     return true;
                                   });
  }
  CHECK(applied > 100);
}

TEST(deadlock_that_buffering_hides_is_caught) {
  // Both send first: works only if the library buffers.
  const Group group = pair(Collective::AllGather, 4, [](int r, ScheduleWriter& w) {
    const auto mine = 4 * static_cast<unsigned>(r), other = 4 - mine;
    w.copy(out(mine, 4), in(0, 4));
    w.round();
    w.send(1 - r, in(0, 4));
    w.round();
    w.recv(1 - r, out(other, 4));
  });
  CHECK(check(group.specs, group.schedules, {}).ok);
  expect_error(group, "waits forever to send to rank 1", {true, false});
}

TEST(lanes_of_different_shape_share_a_device_queue) {
  // Submitted by rounds over both lanes, rank 0's second copy (lane 0, round 1, which waits for rank 1's lane
  // 0) would precede lane 1's round 2, and rank 1's the opposite.
  const Group group = pair(Collective::AllGather, 2, [](int r, ScheduleWriter& w) {
    const Slice a = w.scratch(1), b = w.scratch(1);
    const auto mine = 2 * static_cast<unsigned>(r), other = 2 - mine;
    for (unsigned lane = 0; lane < 2; ++lane) {
      const Slice place = lane == 0 ? a : b;
      const bool receives_first = (lane == 0) == (r == 0);
      w.lane();
      if (receives_first) {
        w.round();
        w.recv(1 - r, out(other + lane, 1));
        w.round();
        w.copy(place, in(lane, 1));
        w.round();
        w.send(1 - r, place);
      } else {
        for (int k = 0; k < 2; ++k) {  // two rounds place the copy behind the other lane's
          w.round();
          w.copy(out(mine + lane, 1), in(lane, 1));
        }
        w.round();
        w.copy(place, in(lane, 1));
        w.round();
        w.send(1 - r, place);
        w.round();
        w.recv(1 - r, out(other + lane, 1));
      }
      if (receives_first) {
        w.round();
        w.copy(out(mine + lane, 1), in(lane, 1));
      }
    }
  });
  CHECK(check(group.specs, group.schedules, {true, false}).ok);
  CHECK(check(group.specs, group.schedules, {true, true}).ok);
}

TEST(races_are_caught) {
  const auto racing = [](bool lanes) {
    return pair(Collective::AllGather, 4, [=](int r, ScheduleWriter& w) {
      const auto mine = 4 * static_cast<unsigned>(r), other = 4 - mine;
      w.copy(out(mine, 4), in(0, 4));
      if (lanes) w.lane();
      w.send(1 - r, out(mine, 4));  // reads what the copy writes
      w.recv(1 - r, out(other, 4));
    });
  };
  expect_error(racing(false), "rank 0, lane 0, round 0: steps 0 and 1 race for output[0..4)");
  expect_error(racing(true), "rank 0: lanes 0 and 1 race for output[0..4)");
}

TEST(in_place_race_is_caught) {
  // Right out of place; in place the receive overwrites the data being sent.
  const Group group = pair(Collective::AllReduce, 4, [](int r, ScheduleWriter& w) {
    const Slice mine = w.scratch(4);
    w.copy(mine, in(0, 4));
    w.round();
    w.send(1 - r, in(0, 4));
    w.recv(1 - r, out(0, 4));
    w.round();
    if (r == 0)
      w.reduce(out(0, 4), {mine, out(0, 4)});
    else
      w.reduce(out(0, 4), {out(0, 4), mine});
  });
  CHECK(check(group.specs, group.schedules, {true, true}).ok);
  expect_error(group, "in place: rank 0, lane 0, round 1: steps 0 and 1 race",
               {false, false, CheckMode::Aliased::All});
}

TEST(bad_steps_are_named) {
  const auto lone = [](const std::function<void(ScheduleWriter&)>& body) {
    return pair(Collective::AllReduce, 4, [=](int r, ScheduleWriter& w) {
      if (r == 1) body(w);
    });
  };
  expect_error(lone([](ScheduleWriter& w) { w.copy(in(0, 1), out(0, 1)); }), "writes input[0..1)");
  expect_error(lone([](ScheduleWriter& w) { w.copy(out(3, 2), in(0, 2)); }),
               "names output[3..5), but that buffer has 4");
  expect_error(lone([](ScheduleWriter& w) { w.send(1, in(0, 1)); }), "names peer 1 in a group of 2");
  expect_error(lone([](ScheduleWriter& w) { w.send(2, in(0, 1)); }), "names peer 2");
  expect_error(lone([](ScheduleWriter& w) { w.send(0, out(0, 1)); }),
               "reads output[0..1), which is not initialised");
  expect_error(lone([](ScheduleWriter& w) { w.send(0, in(0, 1)); }), "never received");
  expect_error(lone([](ScheduleWriter& w) { w.recv(0, out(0, 1)); }),
               "rank 1, lane 0, round 0, step 0 waits forever to receive from rank 0");
  expect_error(lone([](ScheduleWriter& w) { w.reduce(out(0, 2), {in(0, 2), in(0, 2)}); }), "rank 1 twice");
  expect_error(lone([](ScheduleWriter& w) { w.reduce(out(0, 2), {in(0, 2), in(1, 2)}); }),
               "element 0 with element 1");
  expect_error(lone([](ScheduleWriter& w) { w.copy(out(0, 4), in(0, 4)); }), "never written");
}

TEST(a_barrier_that_completes_too_early_is_caught) {
  Group group{unit::specs_for(make(Collective::Barrier, 4, 0)), {}};
  for (int r = 0; r < 4; ++r) {
    ScheduleWriter writer("one_round");
    const Slice token = writer.scratch(1), incoming = writer.scratch(1);
    writer.send((r + 1) % 4, token);
    writer.recv((r + 3) % 4, incoming);
    group.schedules.push_back(writer.finish());
  }
  expect_error(group, "rank 0 leaves the barrier when only ranks 0,3 have entered it");
}

TEST(specs_that_do_not_belong_together_are_refused) {
  Group group = build(*find_algorithm(Collective::AllReduce, "ring"), make(Collective::AllReduce, 3, 10));
  Group other = group;
  other.specs[1].count = 11;
  CHECK_THROWS(check(other.specs, other.schedules), Error, "specs[1] describes another collective");
  other = group;
  other.schedules.pop_back();
  CHECK_THROWS(check(other.specs, other.schedules), Error, "3 specs and 2 schedules");
}

UNIT_MAIN()
