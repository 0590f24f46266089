// The choice between schedules with equal results: the policy on synthetic times, and on ranks of which one
// is slow.
#include "execution/host/host_execution.hpp"
#include "secret_memory.hpp"
#include "shared_calls.hpp"

using namespace engine_tests;

namespace {

constexpr int kZeroCopy = 0, kStaged = 1;

// One class of calls. As in RivalChoices, decisions take effect kSlots calls later.
struct Policy {
  explicit Policy(int first) : trials(first), rival(first) {}
  Policy(int remembered, double speedup) : trials(remembered, speedup), rival(remembered), trial(0) {}
  // `time`: of a rival's next call. Returns the rival that ran.
  template <typename Time>
  int call(Time time, bool clean = true) {
    if (ran.size() >= shm::kSlots) {
      const std::size_t at = ran.size() - shm::kSlots;
      if (decisions[at]) {
        rival = decisions[at]->rival;
        trial = decisions[at]->trial ? 2 * RivalTrials::kRounds : 0;
      }
      if (in_trial[at]) trials.add(ran[at], times[at], clean);
    }
    in_trial.push_back(trial > 0);
    const int runs = trial > 0 && RivalTrials::runs_other(--trial) ? 1 - rival : rival;
    ran.push_back(runs);
    times.push_back(time(runs));
    decisions.push_back(trials.next());
    return runs;
  }
  int changes() const {
    return static_cast<int>(std::ranges::count_if(decisions, [](const auto& d) { return d && !d->trial; }));
  }
  RivalTrials trials;
  int rival, trial = 2 * RivalTrials::kRounds;
  std::vector<int> ran;
  std::vector<std::uint64_t> times;
  std::vector<bool> in_trial;
  std::vector<std::optional<RivalTrials::Decision>> decisions;
};

}  // namespace

TEST(a_slow_first_rival_is_replaced_within_50_calls) {
  for (const int first : {kZeroCopy, kStaged})
    for (const bool clean : {true, false}) {
      Policy policy(first);
      for (int i = 0; i < 50; ++i) policy.call([&](int r) { return r == first ? 1000u : 500u; }, clean);
      CHECK(policy.ran.back() == 1 - first && policy.changes() == 1);
      CHECK(policy.trials.speedup() > 1.9 && policy.trials.speedup() < 2.1);
    }
}

// Cache effects: the first call after the other rival takes longer.
TEST(a_rival_that_suffers_from_the_other_one_wins_by_its_later_calls) {
  Policy policy(kStaged);
  for (int i = 0; i < 50; ++i) {
    const int before = policy.ran.empty() ? -1 : policy.ran.back();
    policy.call([&](int r) { return r == kStaged ? 1000u : before == r ? 800u : 1500u; });
  }
  CHECK(policy.ran.back() == kZeroCopy);
}

TEST(rivals_that_are_as_fast_and_noise_change_nothing) {
  std::mt19937 random(7);
  Policy equal(kStaged), noisy(kStaged);
  for (int i = 0; i < 100000; ++i) {
    equal.call([](int) { return 1000u; });
    noisy.call([&](int r) {
      return (r == kStaged ? 1000u : 980u) + random() % 30 + (random() % 5 ? 0 : random() % 9000);
    });
  }
  CHECK(equal.changes() == 0 && noisy.changes() == 0);
  CHECK(equal.trials.trials() > 5 && equal.trials.trials() < 15);  // at growing intervals
}

TEST(a_machine_that_changes_is_looked_at_again) {
  Policy policy(kStaged);
  const auto slow = [&](int slower) { return [=](int r) { return r == slower ? 2000u : 1000u; }; };
  for (int i = 0; i < 600; ++i) policy.call(slow(kZeroCopy));
  CHECK(policy.ran.back() == kStaged);
  for (int i = 0; i < 2100; ++i) policy.call(slow(kStaged));
  CHECK(policy.ran.back() == kZeroCopy && policy.changes() == 1);
  for (int i = 0; i < 600; ++i) policy.call(slow(kZeroCopy));
  CHECK(policy.ran.back() == kStaged && policy.changes() == 2);
}

TEST(what_is_remembered_runs_without_a_trial_until_it_is_checked) {
  for (const int remembered : {kZeroCopy, kStaged}) {
    Policy policy(remembered, 1.5);
    const auto slow = [=](int r) { return r == remembered ? 2000u : 1000u; };
    for (std::uint64_t i = 0; i < RivalTrials::kCheck; ++i) policy.call(slow);
    CHECK(std::ranges::count(policy.ran, remembered) == std::ssize(policy.ran));
    CHECK(policy.trials.speedup() == 1.5 && policy.changes() == 0);
    for (int i = 0; i < 50; ++i) policy.call(slow);
    CHECK(policy.ran.back() == 1 - remembered && policy.changes() == 1);
  }
}

// Decisions take effect at the same call on all ranks, despite calls in flight, other classes, calls without
// rivals, and eight threads that use other groups.
TEST(all_ranks_switch_at_the_same_call) {
  constexpr int kOthers = unit::kSanitized ? 2 : 8, kTurns = unit::kSanitized ? 60 : 100;
  for (const int p : {2, 3}) {
    if (unit::kSanitized && p == 2) continue;
    const auto size = static_cast<std::size_t>(p);
    std::vector<std::shared_ptr<Recorder>> recorders(size);
    for (auto& recorder : recorders) recorder = std::make_shared<Recorder>(20ms);  // "staged" sleeps
    World world(p, {.observers = {recorders.begin(), recorders.end()}, .node = true});
    std::vector<std::vector<std::shared_ptr<Group>>> others(kOthers);
    for (auto& groups : others) {
      const auto nodes = make_node(p);
      auto transports = make_loopback(p);
      for (std::size_t r = 0; r < size; ++r)
        groups.push_back(std::make_shared<Group>(
            *world.ranks[r].engine, GroupOptions{.name = "other", .node = nodes[r]}, std::move(transports[r]),
            std::make_shared<Planner>(env_of({{"MPI_GDR_ADAPT", "off"}}))));
    }
    std::atomic<bool> over{false};
    std::vector<std::future<void>> traffic;
    for (const auto& groups : others)
      for (int r = 0; r < p; ++r)
        traffic.push_back(std::async(std::launch::async, [&, r] {
          for (std::vector<float> stop(100); stop[0] == 0;) {  // the sum stops all ranks after one call
            stop.assign(stop.size(), over ? 1.0f : 0.0f);
            world.wait(r, groups[r]->issue({all_reduce(world, r, stop)}, named("it", foreground())));
          }
        }));
    world.run([&](int r) {
      Group& group = *world.ranks[r].group;
      for (int turn = 0; turn < kTurns; ++turn) {
        constexpr std::size_t kAtOnce = 8;
        std::array<Buffers, kAtOnce> buffers;
        std::vector<CollectiveCall> calls;
        std::vector<OperationPtr> ops;
        for (std::size_t i = 0; i < kAtOnce; ++i) {
          const std::size_t count = i % 2 ? 40000 : i == 4 ? 100000 : 3;
          const Collective collective = i == 7 ? Collective::Broadcast : Collective::AllReduce;
          calls.push_back(call_of(collective, r, p, count, 0, buffers[i], false));
          ops.push_back(group.issue({calls.back()}, {{.name = "it"}}));
        }
        for (std::size_t i = 0; i < ops.size(); ++i) {
          world.wait(r, ops[i]);
          expect_result(calls[i]);
        }
      }
    });
    over = true;
    for (auto& thread : traffic) thread.get();
    for (const auto& recorder : recorders) CHECK(recorder->ran == recorders[0]->ran);
    const auto& ran = recorders[0]->ran;
    CHECK(ran.size() == kTurns * 5);
    CHECK(std::ranges::count(ran, "staged") > 10 && ran.back() == "zero_copy");
    for (const auto& rank : world.ranks)
      for (const RivalChoices::Report& report : rank.group->rival_report())
        CHECK(!report.mapped && report.rival == kZeroCopy);
    for (int r = 0; r < p; ++r)
      for (const auto& groups : others) world.ranks[r].engine->close(*groups[r]);
    world.close();
  }
}

TEST(all_ranks_begin_with_what_is_remembered) {
  constexpr std::size_t kCount = 40000;  // 160000 bytes
  for (const int remembered : {kZeroCopy, kStaged}) {
    std::vector<std::shared_ptr<Recorder>> recorders = {std::make_shared<Recorder>(),
                                                        std::make_shared<Recorder>()};
    // Entries of another size and of mapped memory choose the opposite.
    GroupOptions group{"test", 30s, 32};
    group.choices = {{Collective::AllReduce, 1 << 17, 1 << 18, false, remembered, 1.5},
                     {Collective::AllReduce, 1 << 17, 1 << 18, true, 1 - remembered, 1.5},
                     {Collective::AllReduce, 1 << 18, 1 << 19, false, 1 - remembered, 1.5}};
    World world(2, {.group = group, .observers = {recorders.begin(), recorders.end()}, .node = true});
    world.run([&](int r) {
      for (int i = 0; i < 60; ++i) {
        std::vector<float> data(kCount, 1.0f);
        auto op = start(world, r, data, foreground());
        world.wait(r, op);
        CHECK(op->algorithm() == rival_name(remembered));
        CHECK_CONTAINS(op->describe(), std::string("algorithm=") + rival_name(remembered));
      }
      const auto report = world.ranks[r].group->rival_report();
      CHECK(report.size() == 1 && report[0].rival == remembered && !report[0].measured);
      CHECK(report[0].speedup == (r == 0 ? 1.5 : 0));
    });
    for (const auto& recorder : recorders)
      CHECK(recorder->ran == std::vector<std::string>(60, rival_name(remembered)));
    world.close();
  }
}

// With a cached "staged" choice, the root of a broadcast does not wait for the others.
TEST(a_known_choice_waits_for_no_rank) {
  GroupOptions group{"test", 10s, 32};
  group.choices = {{Collective::Broadcast, 1 << 17, 1 << 18, false, kStaged, 1.5}};
  World world(2, {.group = group, .node = true});
  std::atomic<bool> root_is_done{false};
  world.run_and_close([&](int r) {
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { root_is_done = root_is_done || r == 0; });
    for (int i = 0; i < 2; ++i) {
      while (i == 1 && r == 1 && !root_is_done) std::this_thread::yield();
      Buffers buffers;
      const CollectiveCall call = call_of(Collective::Broadcast, r, 2, 40000, 0, buffers, false);
      world.wait(r, world.ranks[r].group->issue({call}, named("it", foreground())));
      expect_result(call);
    }
  });
}

#if !defined(__SANITIZE_THREAD__)  // an arena: see test_shared_memory.cpp
// A rank with a cached choice does not wait for ranks that query the kernel, must first choose for an earlier
// call, or use group memory: all run the same schedule.
TEST(ranks_that_do_not_wait_choose_as_the_others_do) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 2000, kAtOnce = 4, kBytes = kCount * sizeof(float);
  if (!has_secret_memory(kRanks * kAtOnce * kBytes)) return;
  const Arenas owned(kRanks);
  const auto& arenas = owned.all;
  std::vector<std::shared_ptr<Recorder>> recorders(kRanks);
  for (auto& recorder : recorders) recorder = std::make_shared<Recorder>();
  GroupOptions group{"test", 30s, 32};
  group.choices = {{Collective::AllReduce, 4096, 8192, false, 1, 1.5}};  // "staged"
  World world(kRanks, {.group = group,
                       .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "adaptive"}, {"MPI_GDR_ADAPT", "on"}}),
                       .observers = {recorders.begin(), recorders.end()},
                       .node = true,
                       .arenas = arenas});
  world.run_and_close([&](int r) {
    std::mt19937 random(static_cast<unsigned>(r));
    for (int turn = 0; turn < (unit::kSanitized ? 40 : 200); ++turn) {
      std::array<Buffers, kAtOnce> buffers;
      std::array<std::optional<SecretMemory>, kAtOnce> secrets;
      std::vector<void*> blocks;
      std::vector<CollectiveCall> calls;
      std::vector<OperationPtr> ops;
      for (std::size_t i = 0; i < kAtOnce; ++i) {
        calls.push_back(call_of(Collective::AllReduce, r, kRanks, kCount, 0, buffers[i], false));
        CollectiveCall& call = calls.back();
        const unsigned kind = turn % 8 == 7 ? 0 : random() % 4;  // now and then all in group memory
        if (kind == 0) {
          for (int k = 0; k < 2; ++k) blocks.push_back(arenas[r]->allocate(kBytes));
          std::memcpy(blocks[blocks.size() - 2], call.input, kBytes);
          call.input = blocks[blocks.size() - 2];
          call.output = blocks.back();
        } else if (kind == 1) {
          secrets[i].emplace(kBytes);
          std::memcpy(secrets[i]->memory, call.input, kBytes);
          call.input = secrets[i]->memory;
        }
        ops.push_back(world.ranks[r].group->issue({call}, {{.name = "it"}}));
      }
      for (std::size_t i = 0; i < kAtOnce; ++i) {
        world.wait(r, ops[i]);
        expect_result(calls[i]);
      }
      for (void* block : blocks) arenas[r]->free(block);
    }
  });
  for (const auto& recorder : recorders) CHECK(recorder->ran == recorders[0]->ran);
  CHECK(std::ranges::count(recorders[0]->ran, "staged") > 50 &&
        std::ranges::count(recorders[0]->ran, "zero_copy") > 10);
}
#endif

// Each rank advances call 1 only; call 0 never chooses.
TEST(a_call_that_waits_for_an_earlier_one_reports_it) {
  World world(2);
  const auto nodes = make_node(2);
  const Traffic traffic;
  Planner planner(env_of({}));
  std::vector<std::unique_ptr<RivalChoices>> choices;
  std::vector<std::vector<float>> data(2, std::vector<float>(40000));
  auto transports = make_loopback(2);
  ScratchPool pool;
  std::vector<std::unique_ptr<HostExecution>> executions;
  for (int r = 0; r < 2; ++r) {
    auto& own = data[r];
    choices.push_back(std::make_unique<RivalChoices>(*nodes[r], traffic, "test"));
    const CollectiveSpec spec = all_reduce(world, r, own).spec;
    Binding binding{.input = own.data(),
                    .output = own.data(),
                    .dtype = spec.dtype,
                    .node = nodes[r].get(),
                    .rivals = {choices.back().get(), 1, own.size() * 4}};
    binding.call.collective = Collective::AllReduce;
    executions.push_back(std::make_unique<HostExecution>(
        planner.plan(spec, false, nodes[r]->reach()).schedule, std::move(binding), *transports[r], pool));
  }
  for (int i = 0; i < 4; ++i) CHECK(!executions[i % 2]->advance());
  for (const auto& execution : executions)
    CHECK(execution->pending_peers().empty() && execution->awaits_turn() && !execution->chosen());
  for (const auto& execution : executions) execution->abandon();
  world.close();
}

TEST(what_the_user_names_and_what_is_switched_off_is_not_measured) {
  for (const auto& [variable, value] : {std::pair("MPI_GDR_ADAPT", "off"),
                                        {"MPI_GDR_ALLREDUCE_ALGO", "staged"},
                                        {"MPI_GDR_SELECT", "broadcast:binomial"},
                                        {"MPI_GDR_SELECT", "all_reduce:adaptive"}}) {
    World world(2, {.env = env_of({{variable, value}}), .node = true});
    world.run_and_close([&](int r) {
      for (int i = 0; i < 40; ++i) {
        std::vector<float> data(40000, 1.0f);
        auto op = start(world, r, data, foreground());
        world.wait(r, op);
        CHECK(op->algorithm() == "staged");
      }
      CHECK(world.ranks[r].group->rival_report().empty());
    });
  }
}

UNIT_MAIN()
