// The engine while a thread is stuck inside the transport.
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

// The first report about rank 0, which the test may hold inside the transport.
struct Watched {
  explicit Watched(std::chrono::milliseconds timeout)
      : options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", timeout, 32}} {
    options.engine.stuck_grace = 200ms;
    options.engine.on_stuck = [this](const std::string& text) {
      if (reports++ == 0) report.set_value(text);
    };
  }
  const std::shared_ptr<LoopbackFaults> faults = std::make_shared<LoopbackFaults>();
  std::promise<std::string> report;
  std::atomic<int> reports{0};
  WorldOptions options;
};

}  // namespace

TEST(a_thread_stuck_in_the_library_is_reported) {
  Watched watched(100ms);
  World world(2, watched.options);
  auto& data = unfreed(10);
  watched.faults->stick();
  auto op = start(world, 0, data);
  auto text = watched.report.get_future().get();
  CHECK(text.find("stuck inside the MPI library") != std::string::npos);
  CHECK(text.find("all_reduce seq=0") != std::string::npos);
  // A waiter that cannot take the progress role still gets its error.
  CHECK_THROWS(world.ranks[0].engine->wait(*op), Error, "another thread has been busy or stuck");
  watched.faults->release();
}

TEST(an_overdue_operation_is_reported_though_the_thread_is_stuck_in_another) {
  Watched watched(60s);
  World world(2, watched.options);
  auto &first = unfreed(10), &second = unfreed(10);
  watched.faults->stick();
  auto pending = start(world, 0, first);
  while (!watched.faults->held()) std::this_thread::sleep_for(1ms);
  IssueOptions short_timeout;
  short_timeout.timeout = 100ms;
  auto op = start(world, 0, second, short_timeout);
  CHECK(watched.report.get_future().get().find("stuck inside the MPI library") != std::string::npos);
  watched.faults->release();
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

TEST(waiting_for_all_ends_with_an_abort_though_a_thread_is_stuck) {
  auto faults = std::make_shared<LoopbackFaults>();
  WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", 60s, 32}};
  options.engine.on_stuck = [](const std::string&) {};
  World world(2, options);
  Engine& engine = *world.ranks[0].engine;
  faults->stick();
  auto op = start(world, 0, unfreed(10));
  while (!faults->held()) std::this_thread::sleep_for(1ms);
  auto waiter = std::async(std::launch::async, [&] { engine.wait_all(*world.ranks[0].group); });
  CHECK(waiter.wait_for(100ms) == std::future_status::timeout);
  engine.abort(*world.ranks[0].group, "aborted by the user");
  waiter.get();
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "aborted by the user");
  CHECK(faults->held());
  faults->release();
}

// The engine is released while a thread is inside the transport; the thread must return to a live engine.
TEST(a_thread_that_is_left_behind_keeps_its_engine) {
  auto faults = std::make_shared<LoopbackFaults>();
  std::weak_ptr<Engine> engine;
  {
    WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", 60s, 32}};
    options.engine.on_stuck = [](const std::string&) {};
    World world(2, options);
    engine = world.ranks[0].engine->weak_from_this();
    faults->stick();
    for (int i = 0; i < 3; ++i) start(world, 0, unfreed(10));
    while (!faults->held()) std::this_thread::sleep_for(1ms);
  }
  CHECK(!engine.expired());
  faults->release();
  for (int i = 0; i < 6000 && !engine.expired(); ++i) std::this_thread::sleep_for(5ms);
  CHECK(engine.expired());
}

TEST(abort_does_not_need_a_thread_that_is_stuck) {
  auto faults = std::make_shared<LoopbackFaults>();
  WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", 60s, 32}};
  options.engine.stuck_grace = 100ms;
  options.engine.on_stuck = [](const std::string&) {};
  World world(2, options);
  auto& data = unfreed(10);
  faults->stick();
  std::promise<void> finished;
  auto op = start(world, 0, data);
  op->on_finished([&] { finished.set_value(); });
  while (!faults->held()) std::this_thread::sleep_for(1ms);
  world.ranks[0].engine->abort(*world.ranks[0].group, "aborted by the user");
  finished.get_future().get();
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "aborted by the user");
  CHECK(faults->held());  // all the time
  CHECK(!world.ranks[0].engine->shutdown());
  CHECK(world.ranks[0].engine->left_behind());
  faults->release();
}

TEST(a_thread_that_a_lost_peer_holds_is_reported_before_any_deadline) {
  Watched watched(60s);
  World world(2, watched.options);
  auto& data = unfreed(10);
  watched.faults->stick();
  auto op = start(world, 0, data);
  while (!watched.faults->held()) std::this_thread::sleep_for(1ms);
  world.ranks[0].engine->lose({world.ranks[0].group.get()}, "rank 1 is gone");
  CHECK_THROWS(world.ranks[0].engine->wait(*op), Error, "rank 1 is gone");
  const std::string text = watched.report.get_future().get();
  CHECK(text.find("stuck inside the MPI library, working on all_reduce") != std::string::npos);
  CHECK(text.find("rank 1 is gone. Ending this process") != std::string::npos);
  watched.faults->release();
}

UNIT_MAIN_THAT_LEAKS()
