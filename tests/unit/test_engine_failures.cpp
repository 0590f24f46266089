// What the engine does when something goes wrong: every failure ends with an error that says what, and
// nothing hangs.
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

// What an operation that was given up works on must stay, as the engine leaks it in earnest.
std::vector<float>& unfreed(std::size_t count) { return *new std::vector<float>(count, 1.0f); }

}  // namespace

TEST(bad_calls_are_refused_before_anything_is_sent) {
  World world(2);
  Group& group = *world.ranks[0].group;
  char byte = 0;
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 2, 0}}, {.name = "send"}), Error,
               "peer=2 is not a rank");
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 0, 0}}, {.name = "send"}), Error, "this rank itself");
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 1, -1}}, {.name = "send"}), Error, "tag=-1");
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 1, 1 << 20}}, {.name = "send"}), Error, "0..32767");
  CollectiveCall call;
  call.spec = {
      .collective = Collective::AllReduce, .size = 2, .dtype = DataType::Int32, .op = ReduceOp::PreMulSum};
  CHECK_THROWS(group.issue({call}, {.name = "all_reduce"}), Error, "premul_sum is not defined on int32");
  CHECK(group.sequence(Channel::Collective) == 0);
  CHECK_THROWS(Planner(env_of({{"MPI_GDR_BROADCAST_ALGO", "pigeon"}})), Error,
               "MPI_GDR_BROADCAST_ALGO=pigeon");
  world.close();
  CHECK_THROWS(group.issue({MessageCall{true, &byte, 1, 1, 0}}, {.name = "send"}), Error,
               "has been destroyed");
}

TEST(mismatched_sizes_are_an_error_on_a_rank_that_sees_them) {
  World world(2,
              {.group = {"test", 2s, 32}, .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "recursive_doubling"}})});
  std::atomic<int> errors{0};
  world.run([&](int r) {
    auto& data = unfreed(r == 0 ? 8 : 16);
    try {
      auto op = start(world, r, data, foreground());
      world.ranks[r].engine->wait(*op);
    } catch (const Error& e) {
      ++errors;
    }
  });
  CHECK(errors == 2);
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
      CHECK_THROWS(world.ranks[r].engine->wait(*op), Error, "still waiting for rank");
      // The group is unusable from here on, and says why.
      CHECK_THROWS(start(world, r, data[r]), Error, "failed earlier: timed out");
    } else {
      CHECK_THROWS(world.ranks[r].engine->wait(*op), Error, "timed out after");
    }
  });
}

TEST(a_timeout_reaches_futures_too) {
  World world(2, {.group = {"test", 200ms, 32}});
  auto& data = unfreed(10);
  std::promise<void> finished;
  auto op = start(world, 0, data);  // rank 1 never joins
  op->on_finished([&] { finished.set_value(); });
  finished.get_future().get();
  CHECK(op->error() != nullptr);
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "all_reduce seq=0");
  CHECK_THROWS(world.ranks[0].engine->wait(*op), Error, "timed out");
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
    bool threw = false;
    try {
      for (int i = 0; i < 10; ++i) {
        auto op = start(world, r, data);
        world.ranks[r].engine->wait(*op);
      }
    } catch (const Error&) {
      threw = true;
    }
    CHECK(threw);
  });
}

TEST(abort_ends_running_and_later_operations) {
  World world(2);
  auto &data = unfreed(10), &later = unfreed(10);
  auto op = start(world, 0, data);
  auto waiter = std::async(std::launch::async, [&] { world.ranks[0].engine->wait(*op); });
  std::this_thread::sleep_for(20ms);
  world.ranks[0].engine->abort(*world.ranks[0].group, "aborted by the user");
  CHECK_THROWS(waiter.get(), Error, "aborted by the user");
  CHECK_THROWS(start(world, 0, later), Error, "aborted by the user");
}

TEST(a_thread_stuck_in_the_library_is_reported) {
  auto faults = std::make_shared<LoopbackFaults>();
  std::promise<std::string> told;
  WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", 100ms, 32}};
  options.engine.stuck_grace = 200ms;
  std::atomic<int> reports{0};
  options.engine.on_stuck = [&](const std::string& text) {
    if (reports++ == 0) told.set_value(text);
  };
  World world(2, options);
  auto& data = unfreed(10);
  faults->stick();
  auto op = start(world, 0, data);
  auto text = told.get_future().get();
  CHECK(text.find("stuck inside the MPI library") != std::string::npos);
  CHECK(text.find("all_reduce seq=0") != std::string::npos);
  // A waiter that cannot have the role still gets its error.
  CHECK_THROWS(world.ranks[0].engine->wait(*op), Error, "another thread has been busy or stuck");
  faults->release();
}

TEST(an_overdue_operation_is_reported_though_the_thread_is_stuck_in_another) {
  auto faults = std::make_shared<LoopbackFaults>();
  std::promise<std::string> told;
  std::atomic<int> reports{0};
  WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", 60s, 32}};
  options.engine.stuck_grace = 200ms;
  options.engine.on_stuck = [&](const std::string& text) {
    if (reports++ == 0) told.set_value(text);
  };
  World world(2, options);
  auto &first = unfreed(10), &second = unfreed(10);
  faults->stick();
  auto patient = start(world, 0, first);
  while (!faults->held()) std::this_thread::sleep_for(1ms);
  IssueOptions hurried;
  hurried.timeout = 100ms;
  auto op = start(world, 0, second, hurried);
  CHECK(told.get_future().get().find("stuck inside the MPI library") != std::string::npos);
  faults->release();
}

TEST(closing_a_group_under_a_stuck_thread_leaks_its_transport) {
  auto faults = std::make_shared<LoopbackFaults>();
  WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", 60s, 32}};
  options.engine.stuck_grace = 100ms;
  options.engine.on_stuck = [](const std::string&) {};
  World world(2, options);
  auto& data = unfreed(10);
  faults->stick();
  auto op = start(world, 0, data);
  while (!faults->held()) std::this_thread::sleep_for(1ms);
  auto releaser = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(600ms);
    faults->release();
  });
  world.ranks[0].engine->close(*world.ranks[0].group);
  CHECK_THROWS(world.ranks[0].engine->wait(*op), Error, "destroyed while a thread was stuck");
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

// Failed operations are leaked on purpose: a peer may still write to their buffers.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_options() {
  return "detect_leaks=0";
}

UNIT_MAIN()
