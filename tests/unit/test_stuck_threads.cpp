// The engine while a thread is stuck inside the transport.
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

// Two ranks, of which the test may hold the first inside the transport, and the first report about it.
struct Watched {
  explicit Watched(std::chrono::milliseconds timeout = 60s) {
    WorldOptions options{.loopback = {.faults = {faults, nullptr}}, .group = {"test", timeout, 32}};
    options.engine.stuck_grace = 100ms;
    options.engine.on_stuck = [this](const std::string& text) {
      if (reports++ == 0) report.set_value(text);
    };
    world.emplace(2, options);
    faults->stick();
  }
  // With the progress thread inside the transport.
  OperationPtr start_stuck() {
    auto operation = start(*world, 0, unfreed(10));
    while (!faults->held()) std::this_thread::sleep_for(1ms);
    return operation;
  }
  Engine& engine() { return *world->ranks[0].engine; }
  Group& group() { return *world->ranks[0].group; }

  const std::shared_ptr<LoopbackFaults> faults = std::make_shared<LoopbackFaults>();
  std::promise<std::string> report;
  std::atomic<int> reports{0};
  std::optional<World> world;
};

}  // namespace

TEST(a_thread_stuck_in_the_library_is_reported) {
  Watched watched(100ms);
  auto op = start(*watched.world, 0, unfreed(10));
  const std::string text = watched.report.get_future().get();
  CHECK_CONTAINS(text, "stuck inside the MPI library");
  CHECK_CONTAINS(text, "all_reduce seq=0");
  // A waiter that cannot take the progress role still gets its error.
  CHECK_THROWS(watched.engine().wait(*op), Error, "another thread has been busy or stuck");
  watched.faults->release();
}

TEST(an_overdue_operation_is_reported_though_the_thread_is_stuck_in_another) {
  Watched watched;
  auto pending = watched.start_stuck();
  auto op = start(*watched.world, 0, unfreed(10), within(100ms));
  CHECK_CONTAINS(watched.report.get_future().get(), "stuck inside the MPI library");
  watched.faults->release();
}

TEST(closing_a_group_under_a_stuck_thread_leaks_its_transport) {
  Watched watched;
  auto op = watched.start_stuck();
  auto releaser = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(600ms);
    watched.faults->release();
  });
  watched.engine().close(watched.group());
  CHECK_THROWS(watched.engine().wait(*op), Error, "destroyed while a thread was stuck");
}

TEST(waiting_for_all_ends_with_an_abort_though_a_thread_is_stuck) {
  Watched watched;
  auto op = watched.start_stuck();
  auto waiter = std::async(std::launch::async, [&] { watched.engine().wait_all(watched.group()); });
  CHECK(waiter.wait_for(100ms) == std::future_status::timeout);
  watched.engine().abort(watched.group(), "aborted by the user");
  waiter.get();
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "aborted by the user");
  CHECK(watched.faults->held());
  watched.faults->release();
}

// The engine is released while a thread is inside the transport; the thread must return to a live engine.
TEST(a_thread_that_is_left_behind_keeps_its_engine) {
  Watched watched;
  const std::weak_ptr<Engine> engine = watched.engine().weak_from_this();
  for (int i = 0; i < 3; ++i) watched.start_stuck();
  watched.world.reset();
  CHECK(!engine.expired());
  watched.faults->release();
  for (int i = 0; i < 6000 && !engine.expired(); ++i) std::this_thread::sleep_for(5ms);
  CHECK(engine.expired());
}

TEST(abort_does_not_need_a_thread_that_is_stuck) {
  Watched watched;
  auto op = watched.start_stuck();
  watched.engine().abort(watched.group(), "aborted by the user");
  await_callback(op);
  CHECK_THROWS(std::rethrow_exception(op->error()), Error, "aborted by the user");
  CHECK(watched.faults->held());  // all the time
  CHECK(!watched.engine().shutdown());
  CHECK(watched.engine().left_behind());
  watched.faults->release();
}

TEST(a_thread_that_a_lost_peer_holds_is_reported_before_any_deadline) {
  Watched watched;
  auto op = watched.start_stuck();
  watched.engine().lose({&watched.group()}, "rank 1 is gone");
  CHECK_THROWS(watched.engine().wait(*op), Error, "rank 1 is gone");
  const std::string text = watched.report.get_future().get();
  CHECK_CONTAINS(text, "stuck inside the MPI library, working on all_reduce");
  CHECK_CONTAINS(text, "rank 1 is gone. Ending this process");
  watched.faults->release();
}

UNIT_MAIN_THAT_LEAKS()
