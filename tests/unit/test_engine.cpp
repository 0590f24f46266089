// The engine over the loopback transport: one Engine per emulated rank, all in this process.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <numeric>
#include <random>

#include "common/error.hpp"
#include "engine/engine.hpp"
#include "test.hpp"
#include "transport/loopback/loopback.hpp"

using namespace mpigdr;
using namespace std::chrono_literals;

namespace {

Env env_of(std::vector<std::pair<std::string, std::string>> values) {
  return Env([values = std::move(values)](const char* name) -> const char* {
    for (const auto& [key, value] : values)
      if (key == name) return value.c_str();
    return nullptr;
  });
}

struct Rank {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Group> group;
};

struct WorldOptions {
  LoopbackOptions loopback;
  EngineOptions engine;
  GroupOptions group{"test", 30s, 32};
  Env env = env_of({});
};

struct World {
  explicit World(int size, WorldOptions options = {}) {
    auto transports = make_loopback(size, options.loopback);
    options.engine.oversubscribed = true;
    for (int r = 0; r < size; ++r) {
      Rank rank;
      rank.engine = std::make_unique<Engine>(options.engine);
      rank.group = rank.engine->make_group(options.group, std::move(transports[r]),
                                           std::make_shared<Planner>(options.env));
      ranks.push_back(std::move(rank));
    }
  }
  // `body(rank)` on a thread per rank; rethrows the first error.
  void run(const std::function<void(int)>& body) {
    std::vector<std::future<void>> done;
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r)
      done.push_back(std::async(std::launch::async, body, r));
    for (auto& d : done) d.get();
  }
  void close() {
    run([&](int r) {
      ranks[r].engine->close(*ranks[r].group);
      ranks[r].engine->shutdown();
    });
  }
  std::vector<Rank> ranks;
};

CollectiveCall all_reduce(const World& world, int rank, std::vector<float>& data,
                          ReduceOp op = ReduceOp::Sum) {
  CollectiveCall call;
  call.spec.collective = Collective::AllReduce;
  call.spec.rank = rank;
  call.spec.size = static_cast<int>(world.ranks.size());
  call.spec.count = data.size();
  call.spec.dtype = DataType::Float32;
  call.spec.op = op;
  call.input = call.output = data.data();
  return call;
}

OperationPtr start(World& world, int rank, std::vector<float>& data, IssueOptions options = {},
                   ReduceOp op = ReduceOp::Sum) {
  if (options.name.empty()) options.name = "all_reduce";
  return world.ranks[rank].group->issue({all_reduce(world, rank, data, op)}, options);
}

IssueOptions foreground() {
  IssueOptions options;
  options.background = false;
  return options;
}

}  // namespace

TEST(waiters_carry_operations) {
  for (int p : {1, 2, 3, 5}) {
    for (const char* algorithm : {"ring", "recursive_doubling", "native"}) {
      World world(p, {.env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", algorithm}})});
      world.run([&](int r) {
        for (std::size_t count : {0u, 1u, 7u, 4099u, 100000u}) {
          std::vector<float> data(count);
          std::iota(data.begin(), data.end(), static_cast<float>(r));
          auto op = start(world, r, data, foreground());
          world.ranks[r].engine->wait(*op);
          for (std::size_t i = 0; i < count; ++i)
            CHECK(data[i] == p * static_cast<float>(i) + p * (p - 1) / 2);
        }
      });
      world.close();
    }
  }
}

TEST(progress_thread_carries_what_nobody_waits_for) {
  World world(3);
  world.run([&](int r) {
    std::vector<float> data(50000, 1.0f);
    std::promise<void> finished;
    auto op = start(world, r, data);
    op->on_finished([&] { finished.set_value(); });
    finished.get_future().get();
    CHECK(op->finished() && !op->error());
    for (float x : data) CHECK(x == 3.0f);
  });
  world.close();
}

TEST(many_operations_in_flight_finish_in_any_order) {
  World world(4, {.loopback = {.eager_bytes = 64, .max_late_tests = 5}, .group = {"test", 30s, 4}});
  world.run([&](int r) {
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
      world.ranks[r].engine->wait(*ops[i]);
      for (float x : data[i]) CHECK(x == 4.0f * i + 6.0f);
    }
  });
  world.close();
}

TEST(more_operations_than_tags) {
  World world(2, {.loopback = {.max_tag = 32 * 64 - 1}, .group = {"test", 30s, 8}});
  world.run([&](int r) {
    for (int i = 0; i < 1000; ++i) {
      std::vector<float> data(3, static_cast<float>(i));
      auto op = start(world, r, data, foreground());
      world.ranks[r].engine->wait(*op);
      CHECK(data[0] == 2.0f * i);
    }
  });
  world.close();
}

TEST(a_sender_cannot_run_away_from_its_receivers) {
  // The root's sends are all eager; the receivers start late. Without back-pressure the root would finish at
  // once.
  World world(2, {.group = {"test", 30s, 4}});
  std::atomic<int> root_done{0};
  constexpr int kBroadcasts = 400;
  const auto broadcast = [&](int r, int i) {
    CollectiveCall call;
    call.spec = {.collective = Collective::Broadcast, .rank = r, .size = 2, .root = 0, .count = 8};
    auto buffer = std::make_shared<std::vector<char>>(8, r == 0 ? i % 100 : -1);
    call.output = buffer->data();
    IssueOptions options;
    options.name = "broadcast";
    options.keepalive = buffer;
    options.background = false;
    auto op = world.ranks[r].group->issue({call}, options);
    world.ranks[r].engine->wait(*op);
    CHECK((*buffer)[0] == i % 100);
  };
  world.run([&](int r) {
    if (r == 1) std::this_thread::sleep_for(200ms);
    if (r == 1) CHECK(root_done.load() < 64);
    for (int i = 0; i < kBroadcasts; ++i) {
      broadcast(r, i);
      if (r == 0) ++root_done;
    }
  });
  world.close();
}

TEST(back_pressure_holds_whatever_the_pattern) {
  // Every 16th broadcast is empty, or all traffic of an all_to_all goes one way: still nobody runs away.
  for (const bool all_to_all : {false, true}) {
    World world(2, {.group = {"test", 30s, 4}});
    std::atomic<int> sender_done{0};
    const auto step = [&](int r, int i) {
      auto buffer = std::make_shared<std::vector<char>>(8, 1);
      CollectiveCall call;
      call.spec.rank = r;
      call.spec.size = 2;
      if (all_to_all) {
        call.spec.collective = Collective::AllToAll;
        call.spec.send_counts = r == 0 ? std::vector<std::uint64_t>{0, 8} : std::vector<std::uint64_t>{0, 0};
        call.spec.recv_counts = r == 0 ? std::vector<std::uint64_t>{0, 0} : std::vector<std::uint64_t>{8, 0};
        call.input = call.output = buffer->data();  // one of the two is used on each rank
      } else {
        call.spec.collective = Collective::Broadcast;
        call.spec.count = i % 16 ? 8 : 0;
        call.output = buffer->data();
      }
      IssueOptions options;
      options.name = "step";
      options.keepalive = buffer;
      options.background = false;
      auto op = world.ranks[r].group->issue({call}, options);
      world.ranks[r].engine->wait(*op);
    };
    world.run([&](int r) {
      if (r == 1) std::this_thread::sleep_for(200ms);
      if (r == 1) CHECK(sender_done.load() < 64);
      for (int i = 0; i < 300; ++i) {
        step(r, i);
        if (r == 0) ++sender_done;
      }
    });
    world.close();
  }
}

TEST(coalesced_calls_are_one_operation) {
  World world(3);
  world.run([&](int r) {
    std::vector<std::vector<float>> data(100, std::vector<float>(100, static_cast<float>(r)));
    std::vector<Call> calls;
    for (auto& d : data) calls.push_back(all_reduce(world, r, d));
    IssueOptions options;
    options.name = "allreduce_coalesced";
    auto op = world.ranks[r].group->issue(calls, options);
    world.ranks[r].engine->wait(*op);
    for (auto& d : data) CHECK(d[99] == 3.0f);
    CHECK(world.ranks[r].group->sequence(Channel::Collective) == 100);
  });
  world.close();
}

TEST(messages_do_not_block_and_tell_their_source) {
  World world(3);
  world.run([&](int r) {
    Group& group = *world.ranks[r].group;
    Engine& engine = *world.ranks[r].engine;
    std::vector<std::vector<char>> out(3, std::vector<char>(20000, static_cast<char>(r + 1))),
        in(3, std::vector<char>(20000));
    std::vector<OperationPtr> ops;
    // Everybody sends first: a blocking send would deadlock above the eager limit.
    for (int peer = 0; peer < 3; ++peer)
      if (peer != r)
        ops.push_back(group.issue({MessageCall{true, out[peer].data(), 20000, peer, 5}}, {.name = "send"}));
    for (int i = 0; i < 2; ++i) {
      auto op = group.issue({MessageCall{false, in[i].data(), 20000, kAnySource, 5}}, {.name = "recv"});
      engine.wait(*op);
      const int source = static_cast<const MessageExecution&>(op->part(0)).source();
      CHECK(source != r && in[i][19999] == source + 1);
    }
    for (auto& op : ops) engine.wait(*op);
  });
  world.close();
}

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
    std::vector<float> data(r == 0 ? 8 : 16, 1.0f);
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
  std::vector<float> data[3];
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
  std::vector<float> data(10, 1.0f), more(10, 1.0f);
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
  std::vector<float> data(10, 1.0f);
  auto op = start(world, 0, data, foreground());
  CHECK_THROWS(world.ranks[0].engine->wait(*op, 100ms), Error, "timed out");
}

TEST(errors_of_the_transport_reach_the_waiter) {
  auto faults = std::make_shared<LoopbackFaults>();
  faults->calls_before_error = 3;
  World world(2, {.loopback = {.faults = {faults, nullptr}}, .group = {"test", 1s, 32}});
  world.run([&](int r) {
    std::vector<float> data(100, 1.0f);
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
  std::vector<float> data(10, 1.0f), later(10);
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
  std::vector<float> data(10, 1.0f);
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
  std::vector<float> first(10, 1.0f), second(10, 1.0f);
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
  std::vector<float> data(10, 1.0f);
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

TEST(callbacks_may_wait_for_operations_issued_before_them) {
  World world(2);
  world.run([&](int r) {
    std::vector<float> a(10, 1.0f), b(10, 2.0f);
    std::promise<void> second_finished, first_finished;
    auto first = start(world, r, a);
    auto second = start(world, r, b);
    first->on_finished([&, done = second_finished.get_future().share()] {
      done.get();  // its callback must not be queued behind this one
      first_finished.set_value();
    });
    second->on_finished([&] { second_finished.set_value(); });
    first_finished.get_future().get();
  });
  world.close();
}

TEST(operations_after_shutdown_are_refused_and_leave_nothing_behind) {
  World world(2);
  world.close();
  World other(2);
  std::vector<float> data(10, 1.0f);
  other.ranks[0].engine->shutdown();
  CHECK_THROWS(start(other, 0, data), Error, "has been shut down");
  CHECK(other.ranks[0].group->outstanding() == 0);
  CHECK(other.ranks[0].group->sequence(Channel::Collective) == 0);
}

TEST(a_callback_may_wait_for_another_operation) {
  World world(2);
  world.run([&](int r) {
    std::vector<float> first(10, 1.0f), second(10, 2.0f), third(10, 3.0f);
    std::promise<void> finished;
    auto op = start(world, r, first);
    op->on_finished([&] {
      // As PowerSGD's hook: a collective inside the callback, waited for through its own completion.
      std::promise<void> inner;
      auto nested = start(world, r, second);
      nested->on_finished([&] { inner.set_value(); });
      inner.get_future().get();
      auto blocking = start(world, r, third, foreground());
      world.ranks[r].engine->wait(*blocking);
      finished.set_value();
    });
    finished.get_future().get();
    CHECK(first[0] == 2.0f && second[0] == 4.0f && third[0] == 6.0f);
  });
  world.close();
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
      if (waited) world.ranks[r].engine->wait(*op);
      gone.get_future().get();
    }
  });
  CHECK(released == 4);
  world.close();
}

TEST(two_groups_in_opposite_order) {
  // Rank 0 issues A then B, rank 1 B then A; both are on the same engines.
  auto transports = make_loopback(2);
  World world(2);
  std::shared_ptr<Group> second[2];
  for (int r = 0; r < 2; ++r)
    second[r] = world.ranks[r].engine->make_group({"second", 30s, 32}, std::move(transports[r]),
                                                  std::make_shared<Planner>(env_of({})));
  world.run([&](int r) {
    Engine& engine = *world.ranks[r].engine;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> a(5000, 1.0f), b(5000, 2.0f);
      const auto issue_a = [&] {
        return world.ranks[r].group->issue({all_reduce(world, r, a)}, {.name = "a"});
      };
      const auto issue_b = [&] { return second[r]->issue({all_reduce(world, r, b)}, {.name = "b"}); };
      OperationPtr first = r == 0 ? issue_a() : issue_b();
      OperationPtr last = r == 0 ? issue_b() : issue_a();
      engine.wait(*first);
      engine.wait(*last);
      CHECK(a[0] == 2.0f && b[4999] == 4.0f);
    }
    engine.close(*second[r]);
  });
  world.close();
}

TEST(random_load_from_several_threads_over_several_groups) {
  constexpr int kRanks = 3, kGroups = 3;
  LoopbackOptions loopback{.eager_bytes = 512, .max_late_tests = 3};
  World world(kRanks, {.loopback = loopback});
  std::vector<std::vector<std::shared_ptr<Group>>> groups(kGroups);
  for (auto& group : groups) {
    auto transports = make_loopback(kRanks, loopback);
    for (int r = 0; r < kRanks; ++r)
      group.push_back(world.ranks[r].engine->make_group({"g", 60s, 6}, std::move(transports[r]),
                                                        std::make_shared<Planner>(env_of({}))));
  }
  world.run([&](int r) {
    std::vector<std::future<void>> threads;
    for (int g = 0; g < kGroups; ++g)
      threads.push_back(std::async(std::launch::async, [&, g] {
        std::mt19937 random(g);  // the same sequence on all ranks
        for (int i = 0; i < 60; ++i) {
          const std::size_t count = random() % 3000;
          const bool background = random() % 2, waits = random() % 2;
          std::vector<float> data(count, static_cast<float>(r + i));
          IssueOptions options;
          options.name = "all_reduce";
          options.background = background;
          auto op = groups[g][r]->issue({all_reduce(world, r, data)}, options);
          if (background && !waits) {
            std::promise<void> finished;
            op->on_finished([&] { finished.set_value(); });
            finished.get_future().get();
          } else {
            world.ranks[r].engine->wait(*op);
          }
          for (float x : data) CHECK(x == 3.0f * i + 3.0f);
        }
      }));
    for (auto& t : threads) t.get();
    for (auto& group : groups) world.ranks[r].engine->close(*group[r]);
  });
  world.close();
}

int main(int argc, char** argv) {
  // Failed operations are leaked on purpose (a peer may still write to their buffers); only these tests fail
  // any.
  setenv("LSAN_OPTIONS", "detect_leaks=0", 0);
  return unit::run(argc, argv);
}
