// Failures in the engine: each ends with an error that names its cause, and nothing hangs.
#include "engine_world.hpp"

using namespace engine_tests;

TEST(bad_calls_are_refused_before_anything_is_sent) {
  World world(2);
  Group& group = *world.ranks[0].group;
  char byte = 0;
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 2, 0}}, {{.name = "send"}}), Error,
               "peer=2 is not a rank");
  CHECK_THROWS(group.check({MessageCall{false, &byte, kMaxMessageBytes + 1, kAnySource, 0}}, "recv"), Error,
               "a receive from any source of");
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 1, -1}}, {{.name = "send"}}), Error, "tag=-1");
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 1, 1 << 20}}, {{.name = "send"}}), Error, "0..32767");
  CollectiveCall call;
  call.spec = {
      .collective = Collective::AllReduce, .size = 2, .dtype = DataType::Int32, .op = ReduceOp::PreMulSum};
  CHECK_THROWS(group.issue({call}, {{.name = "all_reduce"}}), Error, "premul_sum is not defined on int32");
  CHECK(group.sequence(Channel::Collective) == 0);
  CHECK_THROWS(Planner(env_of({{"MPI_GDR_BROADCAST_ALGO", "pigeon"}})), Error,
               "MPI_GDR_BROADCAST_ALGO=pigeon");
  world.close();
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 1, 0}}, {{.name = "send"}}), Error,
               "has been destroyed");
}

TEST(mismatched_sizes_are_an_error_on_a_rank_that_sees_them) {
  World world(2,
              {.group = {"test", 2s, 32}, .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "recursive_doubling"}})});
  world.run([&](int r) {
    auto& data = unfreed(r == 0 ? 8 : 16);
    CHECK_THROWS(world.wait(r, start(world, r, data, foreground())), Error, "");
  });
}

TEST(a_dead_peer_is_a_timeout_that_names_it) {
  auto faults = std::make_shared<LoopbackFaults>();
  faults->dead = true;
  World world(3, {.loopback = {.faults = {nullptr, faults, nullptr}},
                  .group = {"test", 300ms, 32},
                  .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "ring"}})});
  static std::vector<float> data[3];
  world.run([&](int r) {
    data[r].assign(1000, 1.0f);
    if (r == 1) return;
    auto op = start(world, r, data[r], foreground());
    if (r == 2) {
      CHECK_THROWS(world.wait(r, op), Error, "still waiting for rank");
      CHECK_THROWS(start(world, r, data[r]), Error, "failed earlier: timed out");
    } else {
      CHECK_THROWS(world.wait(r, op), Error, "timed out after");
    }
  });
}

TEST(a_timeout_reaches_futures_too) {
  World world(2, {.group = {"test", 200ms, 32}});
  auto& data = unfreed(10);
  auto op = start(world, 0, data);  // rank 1 never joins
  await_callback(op);
  CHECK(op->error() != nullptr);
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "all_reduce seq=0");
  CHECK_THROWS(world.wait(0, op), Error, "timed out");
}

TEST(patience_is_shorter_than_the_deadline) {
  World world(2);
  auto& data = unfreed(10);
  auto op = start(world, 0, data, foreground());
  CHECK_THROWS(world.ranks[0].engine->wait(*op, 100ms), Error, "timed out");
}

TEST(errors_of_the_transport_reach_the_waiter) {
  auto faults = std::make_shared<LoopbackFaults>();
  faults->calls_before_error = 3;
  World world(2, {.loopback = {.faults = {faults, nullptr}}, .group = {"test", 1s, 32}});
  world.run([&](int r) {
    auto& data = unfreed(100);
    const auto run = [&] {
      for (int i = 0; i < 10; ++i) world.wait(r, start(world, r, data));
    };
    CHECK_THROWS(run(), Error, "");
  });
}

TEST(abort_ends_running_and_later_operations) {
  World world(2);
  auto &data = unfreed(10), &later = unfreed(10);
  auto op = start(world, 0, data);
  auto waiter = std::async(std::launch::async, [&] { world.wait(0, op); });
  std::this_thread::sleep_for(20ms);
  world.ranks[0].engine->abort(*world.ranks[0].group, "aborted by the user");
  CHECK_THROWS(waiter.get(), Error, "aborted by the user");
  CHECK_THROWS(start(world, 0, later), Error, "aborted by the user");
}

TEST(an_operation_that_waits_for_its_turn_has_a_deadline) {
  World world(2, {.group = {"test", 60s, 1}});  // one at a time
  auto &first = unfreed(10), &second = unfreed(10);
  auto pending = start(world, 0, first);  // rank 1 never joins
  auto op = start(world, 0, second, within(100ms));
  await_callback(op);
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "all_reduce seq=1");
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "had not started: earlier operations");
  CHECK_THROWS(world.wait(0, pending), Error, "the group failed earlier: timed out");
}

// As an `adaptive` call: no rank is missing, but an earlier call of the group has not begun on all ranks.
TEST(an_operation_behind_one_that_has_not_begun_everywhere_reports_it) {
  class Behind : public Execution {
   public:
    bool advance() override { return false; }
    std::vector<int> pending_peers() const override { return {}; }
    bool awaits_turn() const override { return true; }
    void abandon() noexcept override {}
  };
  World world(1);
  const auto now = Clock::now();
  const IssuedInfo info{.sequences = 1, .issued = now, .deadline = now + 100ms};
  std::vector<Operation::Part> parts;
  parts.push_back({std::make_unique<Behind>()});
  const auto op =
      std::make_shared<Operation>(world.ranks[0].group, Description{}, info, std::move(parts), nullptr, true);
  world.ranks[0].engine->submit(op);
  CHECK_THROWS(world.wait(0, op), Error, "an earlier operation of the group has not begun on all");
}

TEST(waiting_for_all_obeys_each_deadline) {
  World world(2, {.group = {"test", 60s, 32}});
  auto pending = start(world, 0, unfreed(10));  // rank 1 never joins
  auto op = start(world, 0, unfreed(10), within(200ms));
  world.ranks[0].engine->wait_all(*world.ranks[0].group);
  CHECK(op->finished() && pending->finished());
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "timed out");
  world.ranks[0].engine->wait_all(*world.ranks[0].group);  // the failed group has no operations left
}

TEST(a_member_that_leaves_fails_what_it_takes_no_part_in) {
  World world(3, {.group = {"test", 60s, 32}});
  auto &first = unfreed(10), &late = unfreed(10), &second = unfreed(10);
  auto zero = start(world, 0, first), two = start(world, 2, late);
  auto one = start(world, 1, second);  // the last one of rank 1
  Group& group = *world.ranks[0].group;
  CHECK(world.ranks[0].engine->first_unfinished(group, Channel::PointToPoint) == 0);
  for (auto [op, rank] : {std::pair{zero, 0}, {one, 1}, {two, 2}}) world.wait(rank, op);
  CHECK(world.ranks[0].engine->first_unfinished(group, Channel::Collective) == 1);
  auto& third = unfreed(10);
  auto waiting = start(world, 0, third);
  CHECK(world.ranks[0].engine->first_unfinished(group, Channel::Collective) == 1);
  // Rank 1 has issued two collectives, so the running one may still complete.
  group.depart({1, "rank 1 has left", {2, 0, 0}, Clock::now()});
  std::this_thread::sleep_for(100ms);
  CHECK(!waiting->finished() && !group.failed());
  char byte = 0;
  auto message = group.issue({MessageCall{false, &byte, 1, 2, 0}}, {{.name = "recv"}});
  auto& fourth = unfreed(10);
  auto beyond = start(world, 0, fourth);
  CHECK_THROWS(world.wait(0, beyond), Error, "rank 1 has left");
  CHECK_THROWS(world.wait(0, waiting), Error, "rank 1 has left");
  CHECK_THROWS(world.wait(0, message), Error, "rank 1 has left");
}

TEST(what_a_lost_member_had_completed_ends_well) {
  World world(2, {.group = {"test", 60s, 32}, .node = true});
  auto &mine = unfreed(10), &others = unfreed(10), &unmatched = unfreed(10);
  char& received = *new char(0);
  Engine& engine = *world.ranks[0].engine;
  Group& group = *world.ranks[0].group;
  auto complete = start(world, 0, mine, foreground());
  engine.try_pass(Engine::Releases::Here, complete.get());  // sends this rank's part
  world.wait(1, start(world, 1, others, foreground()));
  auto incomplete = start(world, 0, unmatched, foreground());
  // A later message could match the receive of a lost one.
  auto message = group.issue({MessageCall{false, &received, 1, 1, 0}}, named("recv", foreground()));
  engine.try_pass(Engine::Releases::Here, message.get());
  char sent = 1;
  world.wait(1, start_message(world, 1, {true, &sent, 1, 0, 0}));
  engine.lose({&group}, "rank 1 is gone");
  engine.wait(*complete);
  CHECK(mine[9] == 2.0f);
  CHECK_THROWS(engine.wait(*incomplete), Error, "rank 1 is gone");
  CHECK_THROWS(engine.wait(*message), Error, "rank 1 is gone");
}

TEST(a_message_of_a_member_that_left_is_waited_for_a_little) {
  World world(2, {.group = {"test", 60s, 32}});
  Group& group = *world.ranks[0].group;
  char &sent = *new char(7), &got = *new char(0), &never = *new char(0);
  group.depart({1, "rank 1 has left", {0, 0, 0}, Clock::now()});
  auto receive = group.issue({MessageCall{false, &got, 1, 1, 0}}, {{.name = "recv"}});
  auto never_matched = group.issue({MessageCall{false, &never, 1, 1, 1}}, {{.name = "recv"}});
  auto send = start_message(world, 1, {true, &sent, 1, 0, 0});
  world.wait(0, receive);
  CHECK(got == 7);
  CHECK_THROWS(world.wait(0, never_matched), Error, "rank 1 has left");
}

TEST(errors_of_the_transport_include_the_state_of_the_peer) {
  auto faults = std::make_shared<LoopbackFaults>();
  faults->calls_before_error = 0;
  WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", 60s, 32}};
  options.engine.explain = [](const GroupState&) { return "rank 1 is gone"; };
  World world(2, options);
  auto op = start(world, 0, unfreed(10));
  CHECK_THROWS(world.wait(0, op), Error, "all_reduce seq=0");
  CHECK_THROWS(world.wait(0, op), Error, "rank 1 is gone; ");
}

TEST(a_closed_group_keeps_its_receive_buffers_unwritten) {
  constexpr std::size_t kBytes = 5000000;
  WorldOptions options{.node = true};
  options.engine.longest_nap = 1h;  // only the test makes passes
  World world(2, options);
  auto &sent = *new std::vector<char>(kBytes, 1), &got = *new std::vector<char>(kBytes, 0);
  Engine &sender = *world.ranks[0].engine, &receiver = *world.ranks[1].engine;
  auto send = start_message(world, 0, {true, sent.data(), kBytes, 1, 0});
  auto receive = start_message(world, 1, {false, got.data(), kBytes, 0, 0});
  receiver.try_pass(Engine::Releases::Here);  // opens the copy and takes some
  CHECK(got.front() == 1 && got.back() == 0 && !receive->finished());
  receiver.abort(*world.ranks[1].group, "aborted by the user");
  receiver.close(*world.ranks[1].group);
  CHECK(receive->finished());
  const std::vector<char> before = got;
  for (int pass = 0; pass < 100; ++pass) sender.try_pass(Engine::Releases::Here);
  CHECK(got == before);
}

TEST(operations_after_shutdown_are_refused_and_leave_nothing_behind) {
  World world(2);
  world.close();
  World other(2);
  auto& data = unfreed(10);
  other.ranks[0].engine->shutdown();
  CHECK_THROWS(start(other, 0, data), Error, "has been shut down");
  CHECK(other.ranks[0].group->outstanding() == 0);
  CHECK(other.ranks[0].group->sequence(Channel::Collective) == 0);
}

TEST(a_failed_message_fails_what_joins_it) {
  World world(2, {.group = {"test", 60s, 32}});
  auto& data = unfreed(10);
  IssueOptions options;
  options.join = start_message(world, 0, {false, data.data(), 4, 1, 0}, within(100ms));
  auto op = start(world, 0, data, options);
  CHECK_THROWS(world.wait(0, op), Error, "recv");
}

UNIT_MAIN_THAT_LEAKS()
