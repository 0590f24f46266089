// Mismatched calls in shared memory: each rank gets an error before any buffer is touched.
#include "shared_calls.hpp"

using namespace engine_tests;

namespace {

// `change`: called once on each rank, edits that rank's call.
void expect_mismatch(const char* algorithm, Collective collective,
                     const std::function<void(CollectiveCall&, int)>& change, const std::string& text) {
  World world(2, {.env = env_of({{Env::algorithm_variable(collective), algorithm}}), .node = true});
  world.run([&](int r) {
    auto& b = *new Buffers;  // leaked as the engine's failed operations are
    CollectiveCall call = call_of(collective, r, 2, 1000, 0, b, false);
    change(call, r);
    auto op = world.ranks[r].group->issue({call}, named("it", foreground()));
    CHECK_THROWS(world.wait(r, op), Error, text.c_str());
    for (const float x : b.output) CHECK(x == -1.0f);
  });
}

// An all_to_all of up to `room` elements, which sends and receives `each` from each rank.
CollectiveCall exchange(int r, int p, std::uint64_t each, std::size_t room, Buffers& b) {
  CollectiveCall call = call_of(Collective::AllToAll, r, p, 0, 0, b, false);
  b.input.assign(room, 1.0f);
  b.output.assign(room, -1.0f);
  call.input = b.input.data();
  call.output = b.output.data();
  call.spec.send_counts.assign(static_cast<std::size_t>(p), each);
  call.spec.recv_counts = call.spec.send_counts;
  return call;
}

}  // namespace

TEST(calls_that_do_not_match_fail_and_write_nothing) {
  for (const char* algorithm : {"zero_copy", "staged", "flag", "adaptive"}) {
    const auto all_reduce = Collective::AllReduce;
    expect_mismatch(
        algorithm, all_reduce, [](CollectiveCall& c, int r) { c.spec.count -= static_cast<unsigned>(r); },
        "called all_reduce #0 of ");
    expect_mismatch(
        algorithm, all_reduce,
        [](CollectiveCall& c, int r) { c.spec.op = r ? ReduceOp::Max : ReduceOp::Sum; }, "op=");
    expect_mismatch(
        algorithm, all_reduce,
        [](CollectiveCall& c, int r) { c.spec.dtype = r ? DataType::Int32 : DataType::Float32; },
        "1000 x int32");
  }
  for (const char* algorithm : {"zero_copy", "staged", "adaptive"}) {
    expect_mismatch(
        algorithm, Collective::AllGather,
        [](CollectiveCall& c, int r) {
          c.spec.counts = {500, 500u - static_cast<unsigned>(r)};
          c.spec.count = 0;
        },
        "all_gather #0");
    expect_mismatch(
        algorithm, Collective::Reduce, [](CollectiveCall& c, int r) { c.spec.root = r; }, "root=");
  }
}

TEST(counts_of_an_all_to_all_that_do_not_match_are_reported) {
  struct Case {
    std::uint64_t sent, expected;  // by rank 0, by rank 1
  };
  // Without the check a receiver would wait for chunks that no rank sends, or ignore those that come.
  for (const Case c : {Case{10, 1 << 20}, Case{10, 0}, Case{0, 10}, Case{1 << 20, 0}}) {
    World world(2, {.env = env_of({{"MPI_GDR_ALLTOALL_ALGO", "staged"}}), .node = true});
    world.run([&](int r) {
      auto& b = *new Buffers;  // leaked as the engine's failed operations are
      CollectiveCall call = exchange(r, 2, 0, 1 << 21, b);
      (r == 0 ? call.spec.send_counts[1] : call.spec.recv_counts[0]) = r == 0 ? c.sent : c.expected;
      auto op = world.ranks[r].group->issue({call}, named("it", foreground()));
      // A rank that exchanges nothing with the other compares nothing; the other always compares.
      if ((r == 0 ? c.sent : c.expected) == 0) {
        world.wait(r, op);
        return;
      }
      const std::string sent = std::to_string(c.sent), expected = std::to_string(c.expected);
      CHECK_THROWS(
          world.wait(r, op), Error,
          (r == 0 ? "rank 1 expects " + expected + " elements from this rank, which sends " + sent
                  : "rank 0 sends " + sent + " elements to this rank, where " + expected + " were expected")
              .c_str());
    });
  }
}

// Rank 0 sends 5 elements to each of the others. A node's short blocks for a rank of another node are
// one message, so that only the sum of their sizes is compared.
TEST(counts_of_an_all_to_all_over_several_nodes_that_do_not_match_are_reported) {
  struct Case {
    int receiver;  // expects 6 from rank 0
    const char* message;
  };
  for (const Case c :
       {Case{1, "rank 0 sends 5 elements to this rank, where 6 were expected"}, Case{2, "40 bytes"}}) {
    WorldOptions options{.group = {"test", 10s, 32}, .node = true};
    options.group.topology = std::make_shared<const Topology>(std::vector<int>{0, 0, 1, 1});
    World world(4, options);
    world.run([&](int r) {
      auto& b = *new Buffers;  // the engine leaks what a failed operation works on
      CollectiveCall call = exchange(r, 4, 5, 21, b);
      if (r == c.receiver) call.spec.recv_counts[0] = 6;
      auto op = world.ranks[r].group->issue({call}, named("it", foreground()));
      if (r == c.receiver) {
        CHECK_THROWS(world.wait(r, op), Error, c.message);
      } else {
        try {
          world.wait(r, op);
        } catch (const Error&) {  // may need the failed rank
        }
      }
    });
  }
}

TEST(counts_that_are_not_one_for_each_rank_are_refused) {
  World world(2, {.node = true});
  world.run([&](int r) {
    Buffers b;
    CollectiveCall call = call_of(Collective::AllToAll, r, 2, 3, 0, b, false);
    call.spec.recv_counts.push_back(0);
    CHECK_THROWS(world.ranks[r].group->issue({call}, named("it", foreground())), Error,
                 "recv_counts has 3 entries, expected size=2");
  });
}

TEST(a_mismatch_is_reported_while_another_rank_is_missing) {
  World world(
      3, {.group = {"test", 10s, 32}, .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "adaptive"}}), .node = true});
  world.run([&](int r) {
    if (r == 0) return;
    auto& b = *new Buffers;  // leaked as the engine's failed operations are
    CollectiveCall call = call_of(Collective::AllReduce, r, 3, 100, 0, b, false);
    call.spec.count -= static_cast<unsigned>(r);
    auto op = world.ranks[r].group->issue({call}, named("it", foreground()));
    CHECK_THROWS(world.wait(r, op), Error, "called all_reduce #0");
  });
}

UNIT_MAIN_THAT_LEAKS()
