// The engine without failures.
#include "engine_world.hpp"

using namespace engine_tests;

TEST(waiters_carry_operations) {
  for (int p : {1, 2, 3, 5}) {
    for (const char* algorithm : {"ring", "recursive_doubling", "native"}) {
      World world(p, {.env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", algorithm}})});
      world.run_and_close([&](int r) {
        for (std::size_t count : {0u, 1u, 7u, 4099u, 100000u}) {
          std::vector<float> data(count);
          std::iota(data.begin(), data.end(), static_cast<float>(r));
          world.wait(r, start(world, r, data, foreground()));
          for (std::size_t i = 0; i < count; ++i)
            CHECK(data[i] == p * static_cast<float>(i) + p * (p - 1) / 2);
        }
      });
    }
  }
}

TEST(many_operations_in_flight_finish_in_any_order) {
  World world(4, {.loopback = {.eager_bytes = 64, .max_late_tests = 5}, .group = {"test", 30s, 4}});
  world.run_and_close([&](int r) {
    std::vector<std::vector<float>> data(200);
    std::vector<OperationPtr> ops;
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i].assign(1 + 37 * (i % 11), static_cast<float>(i + r));
      ops.push_back(start(world, r, data[i]));
    }
    std::vector<std::size_t> order(ops.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(r));
    for (std::size_t i : order) {
      world.wait(r, ops[i]);
      for (float x : data[i]) CHECK(x == 4.0f * i + 6.0f);
    }
  });
}

TEST(coalesced_calls_are_one_operation) {
  World world(3);
  world.run_and_close([&](int r) {
    std::vector<std::vector<float>> data(100, std::vector<float>(100, static_cast<float>(r)));
    std::vector<Call> calls;
    for (auto& d : data) calls.push_back(all_reduce(world, r, d));
    world.wait(r, world.ranks[r].group->issue(calls, {{.name = "allreduce_coalesced"}}));
    for (auto& d : data) CHECK(d[99] == 3.0f);
    CHECK(world.ranks[r].group->sequence(Channel::Collective) == 100);
  });
}

TEST(collectives_end_with_the_messages_that_they_join) {
  World world(2, {.group = {"test", 30s, 1}});  // one collective at a time
  world.run_and_close([&](int r) {
    Group& group = *world.ranks[r].group;
    Engine& engine = *world.ranks[r].engine;
    std::vector<float> first(10, 1.0f), second(10, 1.0f);
    std::vector<char> joined(20000, static_cast<char>(1 + r)), later(20000, static_cast<char>(3 + r));
    const auto message = [&](std::vector<char>& data, IssueOptions options) {
      options.name = r == 0 ? "send" : "recv";
      return group.issue({MessageCall{r == 0, data.data(), data.size(), 1 - r, 5}}, std::move(options));
    };
    IssueOptions options;
    if (r == 1) {  // rank 0's sends proceed; the joined operation's messages do not wait for a turn
      options.join = message(joined, {});
      auto next = message(later, {});
      engine.wait(*next);
      engine.wait(*options.join);  // it has arrived, but a later pass may have to detect that
      CHECK(joined[19999] == 1 && later[19999] == 3);
      auto before = start(world, r, first);
      auto op = start(world, r, second, options);
      engine.wait(*op);
      CHECK(before->finished());
    } else {
      auto before = start(world, r, first);
      options.join = message(joined, {});
      auto op = start(world, r, second, options);
      auto next = message(later, {});
      engine.wait(*op);
      CHECK(options.join->finished());
      engine.wait(*next);
    }
    CHECK(second[9] == 2.0f);
    CHECK_THROWS(group.issue({all_reduce(world, r, first), MessageCall{true, first.data(), 1, 1 - r, 0}},
                             {{.name = "mixed"}}),
                 Error, "mixed: collectives and messages in one operation");
  });
}

TEST(who_waits_for_one_message_of_many_does_not_poll_them_all_each_time) {
  struct Polls : Observer {
    std::atomic<int> count{0};
    void entered(std::uint64_t) override { ++count; }
  };
  const auto polls = std::make_shared<Polls>();
  World world(2, {.engine = {.observers = {polls}}});
  constexpr int kOthers = 50, kMessages = 100;
  char byte = 0;
  for (int i = 0; i < kMessages; ++i)
    world.wait(1, start_message(world, 1, {true, &byte, 1, 0, 1}, foreground()));
  std::vector<OperationPtr> others;
  const auto receive = [&](int tag) {
    return start_message(world, 0, {false, &byte, 1, 1, tag}, foreground());
  };
  for (int i = 0; i < kOthers; ++i) others.push_back(receive(2));
  world.wait(0, receive(1));  // starts the others
  polls->count = 0;
  for (int i = 1; i < kMessages; ++i) world.wait(0, receive(1));
  CHECK(polls->count < kMessages * (kOthers / 4));
  CHECK(polls->count > kMessages * (kOthers / 16));  // but now and then
  for (int i = 0; i < kOthers; ++i)
    world.wait(1, start_message(world, 1, {true, &byte, 1, 0, 2}, foreground()));
  for (const OperationPtr& other : others) world.wait(0, other);
  world.close();
}

TEST(messages_do_not_block_and_return_their_source) {
  World world(3);
  world.run_and_close([&](int r) {
    Group& group = *world.ranks[r].group;
    Engine& engine = *world.ranks[r].engine;
    std::vector<std::vector<char>> out(3, std::vector<char>(20000, static_cast<char>(r + 1))),
        in(3, std::vector<char>(20000));
    std::vector<OperationPtr> ops;
    // All ranks send first: a blocking send would deadlock above the eager limit.
    for (int peer = 0; peer < 3; ++peer)
      if (peer != r)
        ops.push_back(group.issue({MessageCall{true, out[peer].data(), 20000, peer, 5}}, {{.name = "send"}}));
    for (int i = 0; i < 2; ++i) {
      auto op = group.issue({MessageCall{false, in[i].data(), 20000, kAnySource, 5}}, {{.name = "recv"}});
      engine.wait(*op);
      const int source = static_cast<const MessageExecution&>(op->part(0)).source();
      CHECK(source != r && in[i][19999] == source + 1);
    }
    for (auto& op : ops) engine.wait(*op);
  });
}

TEST(a_callback_may_wait_for_another_operation) {
  World world(2);
  world.run_and_close([&](int r) {
    std::vector<float> first(10, 1.0f), second(10, 2.0f), third(10, 3.0f);
    std::promise<void> finished;
    auto op = start(world, r, first);
    op->on_finished([&] {
      // As PowerSGD's hook does: a collective inside the callback, which waits for its completion.
      await_callback(start(world, r, second));
      world.wait(r, start(world, r, third, foreground()));
      finished.set_value();
    });
    finished.get_future().get();
    CHECK(first[0] == 2.0f && second[0] == 4.0f && third[0] == 6.0f);
  });
}

TEST(buffers_are_released_once_and_never_on_the_progress_thread) {
  World world(2);
  std::atomic<int> released{0};
  world.run([&](int r) {
    for (bool waited : {true, false}) {
      std::vector<float> data(10, 1.0f);
      std::promise<void> gone;
      IssueOptions options;
      options.keepalive = std::shared_ptr<void>(&data, [&](void*) {
        char name[16] = {};
        pthread_getname_np(pthread_self(), name, sizeof name);
        if (std::string(name) != "mpigdr-progress") ++released;
        gone.set_value();
      });
      auto op = start(world, r, data, std::move(options));
      options.keepalive.reset();
      if (waited) world.wait(r, op);
      gone.get_future().get();
    }
  });
  CHECK(released == 4);
  world.close();
}

TEST(a_waiter_releases_what_ends_beside_its_own_operation) {
  // Only waiters progress these operations: no other thread wakes up to free buffers.
  World world(2);
  world.run_and_close([&](int r) {
    std::vector<std::vector<float>> data(8, std::vector<float>(10, 1.0f));
    std::vector<OperationPtr> ops;
    std::atomic<int> here{0};
    for (auto& d : data) {
      IssueOptions options = foreground();
      options.keepalive = std::shared_ptr<void>(&d, [&, issuer = std::this_thread::get_id()](void*) {
        here += std::this_thread::get_id() == issuer;
      });
      ops.push_back(start(world, r, d, std::move(options)));
    }
    world.wait(r, ops.back());
    for (auto& op : ops) world.wait(r, op);
    CHECK(here == 8);
  });
}

TEST(two_groups_in_opposite_order) {
  World world(2);
  const auto second = add_group(world, {"second", 30s, 32});
  world.run_and_close([&](int r) {
    Engine& engine = *world.ranks[r].engine;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> a(5000, 1.0f), b(5000, 2.0f);
      const auto issue_a = [&] {
        return world.ranks[r].group->issue({all_reduce(world, r, a)}, {{.name = "a"}});
      };
      const auto issue_b = [&] { return second[r]->issue({all_reduce(world, r, b)}, {{.name = "b"}}); };
      OperationPtr first = r == 0 ? issue_a() : issue_b();
      OperationPtr last = r == 0 ? issue_b() : issue_a();
      engine.wait(*first);
      engine.wait(*last);
      CHECK(a[0] == 2.0f && b[4999] == 4.0f);
    }
    engine.close(*second[r]);
  });
}

TEST(random_load_from_several_threads_over_several_groups) {
  constexpr int kRanks = 3, kGroups = 3;
  LoopbackOptions loopback{.eager_bytes = 512, .max_late_tests = 3};
  World world(kRanks, {.loopback = loopback});
  std::vector<std::vector<std::shared_ptr<Group>>> groups(kGroups);
  for (auto& group : groups) group = add_group(world, {"g", 60s, 6}, loopback);
  world.run_and_close([&](int r) {
    std::vector<std::future<void>> threads;
    for (int g = 0; g < kGroups; ++g)
      threads.push_back(std::async(std::launch::async, [&, g] {
        std::mt19937 random(g);  // the same sequence on all ranks
        for (int i = 0; i < 60; ++i) {
          const std::size_t count = random() % 3000;
          const bool background = random() % 2, waits = random() % 2;
          std::vector<float> data(count, static_cast<float>(r + i));
          auto op =
              groups[g][r]->issue({all_reduce(world, r, data)},
                                  {{.name = "all_reduce"}, Channel::Collective, {}, nullptr, background});
          if (background && !waits)
            await_callback(op);
          else
            world.wait(r, op);
          for (float x : data) CHECK(x == 3.0f * i + 3.0f);
        }
      }));
    for (auto& t : threads) t.get();
    for (auto& group : groups) world.ranks[r].engine->close(*group[r]);
  });
}

UNIT_MAIN()
