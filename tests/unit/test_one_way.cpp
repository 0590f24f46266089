// Collectives in which a rank may finish before its receivers have begun: no rank runs ahead without limit,
// and the counters for that are equal on all ranks, also after a refusal.
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

// Runs a call on its rank and returns its log line.
std::string run_call(World& world, CollectiveCall call, std::shared_ptr<std::vector<char>> memory) {
  Rank& rank = world.ranks[call.spec.rank];
  auto operation = rank.group->issue(
      {call}, {{.name = name(call.spec.collective)}, Channel::Collective, {}, std::move(memory), false});
  rank.engine->wait(*operation);
  return operation->describe();
}

CollectiveCall all_to_all(int rank, std::vector<std::uint64_t> counts, std::vector<char>& memory) {
  return {{.collective = Collective::AllToAll,
           .rank = rank,
           .size = 2,
           .send_counts = counts,
           .recv_counts = counts},
          memory.data(),
          memory.data() + memory.size() / 2};
}

}  // namespace

// Without back-pressure a giver, whose sends are all eager, would end at once while its receivers sleep.
TEST(givers_do_not_run_away) {
  struct Case {
    Collective collective;
    int giver;
    std::vector<std::uint64_t> counts = {};
    int empty = 1 << 20;  // one of so many calls has no data
  };
  const Case cases[] = {{Collective::Broadcast, 0},
                        {Collective::Broadcast, 0, {}, 16},
                        {Collective::Gather, 1},
                        {Collective::Scatter, 0},
                        {Collective::Reduce, 1},
                        {Collective::AllGather, 0, {8, 0}},
                        {Collective::ReduceScatter, 1, {8, 0}},
                        {Collective::AllToAll, 0}};  // all traffic goes one way
  for (const Case& c : cases) {
    World world(2, {.group = {"test", 30s, 4}});
    std::atomic<int> given{0};
    world.run_and_close([&](int r) {
      if (r != c.giver) {
        std::this_thread::sleep_for(200ms);
        CHECK(given.load() < 64);
      }
      for (int i = 0; i < 400; ++i) {
        auto memory = std::make_shared<std::vector<char>>(32, static_cast<char>(i % 100));
        CollectiveCall call{{.collective = c.collective, .rank = r, .size = 2, .counts = c.counts},
                            memory->data(),
                            memory->data() + 16};
        const bool broadcast = c.collective == Collective::Broadcast;
        if (broadcast) call.input = call.output;
        if (broadcast && r != c.giver) memory->assign(32, -1);
        if (c.collective != Collective::AllToAll) call.spec.count = i % c.empty == c.empty - 1 ? 0 : 8;
        if (c.collective == Collective::AllToAll) {
          call.spec.send_counts = {0, r == 0 ? 8u : 0u};
          call.spec.recv_counts = {r == 1 ? 8u : 0u, 0};
        }
        run_call(world, call, memory);
        CHECK(!broadcast || call.spec.count == 0 || (*memory)[16] == i % 100);
        if (r == c.giver) ++given;
      }
    });
  }
}

TEST(gather_and_scatter_bring_the_blocks) {
  for (const char* algorithm : {"linear", "binomial"}) {
    constexpr int kSize = 5;
    World world(kSize,
                {.env = env_of({{"MPI_GDR_GATHER_ALGO", algorithm}, {"MPI_GDR_SCATTER_ALGO", algorithm}})});
    world.run_and_close([&](int r) {
      for (int root = 0; root < kSize; ++root) {
        auto all = std::make_shared<std::vector<char>>(3 * kSize, 0),
             mine = std::make_shared<std::vector<char>>(3);
        std::fill_n(r == root ? all->data() + 3 * r : mine->data(), 3, static_cast<char>(r + 1));
        CollectiveCall call{
            {.collective = Collective::Gather, .rank = r, .size = kSize, .root = root, .count = 3},
            r == root ? all->data() + 3 * r : mine->data(),
            r == root ? all->data() : nullptr};
        CHECK_CONTAINS(run_call(world, call, nullptr), std::string("algorithm=") + algorithm);
        if (r == root)
          for (int i = 0; i < 3 * kSize; ++i) CHECK((*all)[i] == i / 3 + 1);
        std::fill(mine->begin(), mine->end(), char{0});
        call.spec.collective = Collective::Scatter;
        call.input = r == root ? all->data() : nullptr;
        call.output = mine->data();
        run_call(world, call, nullptr);
        CHECK((*mine)[0] == r + 1 && (*mine)[2] == r + 1);
      }
    });
  }
}

TEST(every_all_to_all_is_logged_under_its_own_algorithm) {
  World world(2);
  world.run_and_close([&](int r) {
    for (int i = 0; i < 40; ++i) {
      auto memory = std::make_shared<std::vector<char>>(32);
      const std::string line = run_call(world, all_to_all(r, {8, 8}, *memory), memory);
      CHECK_CONTAINS(line, "algorithm=pairwise");
    }
  });
}

TEST(what_was_refused_does_not_count) {
  World world(2, {.env = env_of({{"MPI_GDR_ALLTOALL_ALGO", "bruck"}})});
  world.run_and_close([&](int r) {
    // One rank only: if refused calls counted, its barriers would come at other calls than its peer's.
    for (int i = 0; r == 0 && i < 9; ++i) {
      std::vector<char> memory(32);
      CHECK_THROWS(world.ranks[0].group->issue({all_to_all(0, {8, 4}, memory)}, {{.name = "all_to_all"}}),
                   Error, "algorithm bruck needs even splits on all ranks, but send_counts[1]=4");
    }
    for (int i = 0; i < 40; ++i) {
      auto memory = std::make_shared<std::vector<char>>(32, static_cast<char>(10 * i + r));
      const CollectiveCall call = all_to_all(r, {8, 8}, *memory);
      run_call(world, call, memory);
      CHECK((*memory)[16] == static_cast<char>(10 * i) && (*memory)[24] == static_cast<char>(10 * i + 1));
    }
  });
}

TEST(all_to_alls_of_two_channels_are_counted_apart) {
  // Order is guaranteed per channel only: the 16th call of both together differs between the ranks.
  World world(2, {.group = {"test", 5s, 32}});
  world.run_and_close([&](int r) {
    const auto exchange = [&](Channel channel) {
      auto memory = std::make_shared<std::vector<char>>(32);
      const CollectiveCall call = all_to_all(r, {8, 8}, *memory);
      return world.ranks[r].group->issue({call}, {{.name = "all_to_all"}, channel, {}, memory});
    };
    for (int i = 0; i < 15; ++i) world.wait(r, exchange(Channel::Collective));
    const OperationPtr first = exchange(r == 0 ? Channel::Collective : Channel::Accelerator);
    const OperationPtr second = exchange(r == 0 ? Channel::Accelerator : Channel::Collective);
    world.wait(r, first);
    world.wait(r, second);
  });
}

TEST(more_in_flight_than_there_are_tags) {
  constexpr int kTags = 4;
  World world(3, {.loopback = {.max_tag = kTags * kTagsPerCollective - 1},
                  .group = {"test", 30s, 1024},
                  .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "ring"}})});
  world.run_and_close([&](int r) {
    std::vector<std::vector<float>> data;
    for (int i = 0; i < 200; ++i) data.emplace_back(3 * (i + 1), static_cast<float>(i));
    std::vector<OperationPtr> operations;
    for (auto& d : data) operations.push_back(start(world, r, d));
    for (int i = 0; i < 200; ++i) {
      world.wait(r, operations[i]);
      CHECK(data[i].back() == 3.0f * i);
    }
  });
}

UNIT_MAIN()
