// Chained calls: the result of the first collective determines the second.
#include "engine_world.hpp"
#include "execution/chained_execution.hpp"

using namespace engine_tests;

namespace {

CollectiveCall all_gather(int rank, int size, const void* input, void* output, std::uint64_t bytes) {
  return {{.collective = Collective::AllGather, .rank = rank, .size = size, .count = bytes}, input, output};
}

// Gathers one number per rank, then as many bytes from each rank as the largest number.
struct Exchange {
  std::uint64_t own = 0;
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint8_t> data, gathered;
  int times_asked = 0;

  Exchange(int rank, int size, std::uint64_t bytes) : own(bytes), sizes(size), data(4096, rank + 1) {}
  ChainedCall call(int rank, int size) {
    return {all_gather(rank, size, &own, sizes.data(), sizeof own),
            [this, rank, size]() -> std::optional<CollectiveCall> {
              ++times_asked;
              const std::uint64_t most = *std::max_element(sizes.begin(), sizes.end());
              if (most == 0) return std::nullopt;
              gathered.resize(size * most);
              return all_gather(rank, size, data.data(), gathered.data(), most);
            }};
  }
  void check(int size, std::uint64_t most) const {
    CHECK(times_asked == 1);
    CHECK(gathered.size() == size * most);
    for (int r = 0; r < size; ++r)
      for (std::uint64_t i = 0; i < most; ++i) CHECK(gathered[r * most + i] == r + 1);
  }
};

}  // namespace

TEST(second_stage_follows_the_first) {
  for (int p : {1, 2, 3, 5}) {
    // "native" applies to the first stage only: the second cannot be a native collective.
    for (const char* algorithm : {"ring", "native"}) {
      World world(p, {.loopback = {.eager_bytes = 64, .max_late_tests = 5},
                      .env = env_of({{"MPI_GDR_ALLGATHER_ALGO", algorithm}})});
      world.run_and_close([&](int r) {
        for (bool background : {false, true}) {
          Exchange some(r, p, 100 + r), none(r, p, 0);
          IssueOptions options;
          options.background = background;
          auto first = world.ranks[r].group->issue({some.call(r, p)}, IssueOptions(options));
          auto second = world.ranks[r].group->issue({none.call(r, p)}, std::move(options));
          CHECK(first->info().sequences == 2 && second->info().sequence == first->info().sequence + 2);
          world.wait(r, second);
          world.wait(r, first);
          some.check(p, 100 + p - 1);
          none.check(p, 0);
        }
      });
    }
  }
}

TEST(staged_calls_mix_with_others) {
  constexpr int p = 3;
  World world(p, {.loopback = {.eager_bytes = 64, .max_late_tests = 7}, .group = {"test", 30s, 4}});
  world.run_and_close([&](int r) {
    std::vector<Exchange> exchanges;
    for (int i = 0; i < 40; ++i) exchanges.emplace_back(r, p, i % 4 == 3 ? 0 : 10 * i + r);
    std::vector<std::vector<float>> data(40, std::vector<float>(50, static_cast<float>(r)));
    std::vector<OperationPtr> ops;
    for (int i = 0; i < 40; ++i) {
      if (i % 2) {  // together in one operation
        ops.push_back(world.ranks[r].group->issue(
            {all_reduce(world, r, data[i]), exchanges[i].call(r, p), all_reduce(world, r, data[i - 1])}, {}));
      } else {
        ops.push_back(world.ranks[r].group->issue({exchanges[i].call(r, p)}, {}));
      }
    }
    for (auto& op : ops) world.wait(r, op);
    for (int i = 0; i < 40; ++i) exchanges[i].check(p, i % 4 == 3 ? 0 : 10 * i + p - 1);
    for (const auto& d : data)
      for (float x : d) CHECK(x == 3.0f);
  });
}

TEST(an_error_between_the_stages_fails_the_operation) {
  World world(2, {.group = {"test", 2s, 32}});
  world.run([&](int r) {
    auto* exchange = new Exchange(r, 2, 8);  // leaked as the keepalive of a failed operation is
    ChainedCall call = exchange->call(r, 2);
    if (r == 0) call.next = []() -> std::optional<CollectiveCall> { throw std::bad_alloc(); };
    auto op = world.ranks[r].group->issue({call}, foreground());
    CHECK_THROWS(world.wait(r, op), Error, r == 0 ? "bad_alloc" : "timed out");
    CHECK(world.ranks[r].group->failure_code() == (r == 0 ? ErrorCode::System : ErrorCode::Timeout));
  });
}

TEST(a_chain_has_the_properties_of_its_stages) {
  struct Stage : Execution {
    bool done = false;
    explicit Stage(const char* algorithm) { chosen_ = algorithm; }
    bool advance() override { return done; }
    std::vector<int> pending_peers() const override { return {3}; }
    bool awaits_turn() const override { return true; }
    void abandon() noexcept override {}
  };
  auto first = std::make_unique<Stage>("zero_copy");
  Stage& stage = *first;
  ChainedExecution chain(std::move(first), [] { return std::make_unique<Stage>(nullptr); });
  CHECK(!chain.advance());
  CHECK(chain.awaits_turn());
  stage.done = true;
  CHECK(!chain.advance());
  CHECK(chain.chosen() == std::string_view("zero_copy"));
}

TEST(times_of_an_operation) {
  World world(2);
  world.run_and_close([&](int r) {
    std::vector<float> data(1000, 1.0f);
    std::promise<bool> finished;
    IssueOptions options;
    options.on_finished = [&](const Operation& op) { finished.set_value(op.finished() && !op.error()); };
    const auto before = Clock::now();
    auto op = start(world, r, data, options);
    world.wait(r, op);
    CHECK(before <= op->info().issued && op->info().issued <= op->started_at());
    CHECK(op->started_at() <= op->finished_at() && op->finished_at() <= Clock::now());
    CHECK(finished.get_future().get());
  });
}

UNIT_MAIN_THAT_LEAKS()
