// Which operations the progress thread carries, and which callers must.
#include "node_ranks.hpp"

using namespace engine_tests;

TEST(a_waiter_that_releases_buffers_does_not_keep_the_progress_thread_napping) {
  // Like the GIL: releasing a tensor waits for a thread that waits for a background operation.
  std::promise<void> releasing;
  const std::shared_future<void> released = releasing.get_future().share();
  std::promise<void> carried;
  std::shared_future<void> is_carried = carried.get_future().share();
  bool in_time = false;
  World world(2);
  world.run([&](int r) {
    Engine& engine = *world.ranks[r].engine;
    std::vector<float> ended(10, 1.0f), awaited(10, 1.0f), background(10, 1.0f);
    IssueOptions options = foreground();
    if (r == 0)
      options.keepalive = std::shared_ptr<void>(&ended, [&](void*) {
        releasing.set_value();
        in_time = is_carried.wait_for(30s) == std::future_status::ready;
      });
    auto first = start(world, r, ended, std::move(options));
    if (r == 1) {  // lets rank 0's waiter, which waits for the second, find the first completed
      engine.wait(*first);
      released.wait();
    }
    auto second = start(world, r, awaited, foreground());
    auto waiter = std::async(std::launch::async, [&] { engine.wait(*second); });
    if (r == 0) released.wait();
    auto third = start(world, r, background);
    if (r == 0) third->on_finished([&] { carried.set_value(); });
    waiter.get();
    engine.wait(*first);
    engine.wait(*third);
  });
  CHECK(in_time);
  world.close();
}

TEST(a_message_is_left_to_its_caller_for_a_nap) {
  WorldOptions options{.node = true};
  options.engine.longest_nap = 1h;
  World world(2, options);
  Bytes data = pattern(200000, 1), got(data.size());
  world.run_and_close([&](int r) {
    Group& group = *world.ranks[r].group;
    Engine& engine = *world.ranks[r].engine;
    int ready = 1;
    if (r == 0) {
      auto send = group.issue({MessageCall{true, data.data(), data.size(), 1, 1}}, {{.name = "send"}});
      auto message = group.issue({MessageCall{true, &ready, 4, 1, 2}}, {{.name = "message"}});
      engine.wait(*message);
      engine.wait(*send);
      return;
    }
    auto message = group.issue({MessageCall{false, &ready, 4, 0, 2}}, {{.name = "message"}});
    engine.wait(*message);  // so the offer has arrived
    auto receive = group.issue({MessageCall{false, got.data(), got.size(), 0, 1}}, {{.name = "receive"}});
    std::this_thread::sleep_for(20ms);
    CHECK(!receive->finished());
    engine.expect(*receive);  // no thread waits: the progress thread ends its nap
    await_callback(receive);
    CHECK(got == data);
    engine.wait(*receive);
  });
}

TEST(messages_do_not_delay_what_others_expect) {
  // Two threads a rank: one begins messages and carries them itself, the other never waits in the engine. An
  // operation that the progress thread wrongly skips never completes.
  WorldOptions options{.node = true};
  options.engine.longest_nap = 1h;
  World world(2, options);
  world.run_and_close([&](int r) {
    constexpr int kRounds = unit::kSanitized ? 1000 : 2000;
    Group& group = *world.ranks[r].group;
    Engine& engine = *world.ranks[r].engine;
    std::barrier round(2);
    auto messages = std::async(std::launch::async, [&] {
      for (int i = 0; i < kRounds; ++i) {
        int out = i, in = -1;
        round.arrive_and_wait();
        auto receive = group.issue({MessageCall{false, &in, 4, 1 - r, 1}}, {{.name = "recv"}});
        auto send = group.issue({MessageCall{true, &out, 4, 1 - r, 1}}, {{.name = "send"}});
        while (!receive->finished() || !send->finished()) engine.try_pass(Engine::Releases::Here);
        CHECK(in == i);
      }
    });
    for (int i = 0; i < kRounds; ++i) {
      std::vector<float> data(10, 1.0f);
      std::promise<void> finished;
      round.arrive_and_wait();
      auto op = start(world, r, data);
      op->on_finished([&] { finished.set_value(); });
      engine.expect(*op);
      finished.get_future().get();
      CHECK(data[9] == 2.0f);
    }
    messages.get();
  });
}

UNIT_MAIN()
