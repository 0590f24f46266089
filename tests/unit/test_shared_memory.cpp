// Ranks that share a node's memory: the segments, and schedules that access other ranks' memory.
#include "secret_memory.hpp"
#include "shared_calls.hpp"

using namespace engine_tests;

namespace {

constexpr unsigned kLong = unit::kSanitized ? 120000 : 300000;  // several chunks

void expect_right(const Algorithm& a, int p, const WorldOptions& options) {
  World world(p, options);
  world.run_and_close([&](int r) {
    Group& group = *world.ranks[r].group;
    for (const std::size_t count : {0u, 1u, 5u, 4099u, kLong})
      for (const bool in_place : {false, true})
        for (int root = 0; root < p; root += 2) {
          if (unit::kSanitized && count > 5000 && (in_place || root > 0)) continue;  // slow
          Buffers b;
          const CollectiveCall call = call_of(a.collective, r, p, count, root, b, in_place && r % 2 == 0);
          auto op = group.issue({call}, named("it", foreground()));
          CHECK(op->info().algorithm == a.name);
          world.wait(r, op);
          expect_result(call);
        }
  });
}

template <typename Body>
void each_shared(Body body) {
  for (const Algorithm& a : algorithms())
    if (a.shared) body(a);
}

}  // namespace

TEST(ranks_attach_and_reach_everything) {
  for (const int p : {1, 2, 5}) {
    const auto nodes = make_node(p);
    for (int r = 0; r < p; ++r) {
      CHECK(nodes[r]->reach() == Reach::All && nodes[r]->rank() == r && nodes[r]->size() == p);
      nodes[r]->staging(r, 0, 3)[5] = static_cast<std::byte>(r + 1);
    }
    for (int r = 0; r < p; ++r)
      for (int q = 0; q < p; ++q) CHECK(nodes[r]->staging(q, 0, 3)[5] == static_cast<std::byte>(q + 1));
  }
}

TEST(a_rank_without_a_segment_is_an_answer_for_all) {
  std::vector<std::unique_ptr<shm::Segment>> segments;
  for (int r = 0; r < 3; ++r) segments.push_back(std::make_unique<shm::Segment>());
  std::string forged = segments[2]->ticket();
  forged.back() = forged.back() == '0' ? '1' : '0';
  for (const std::string& last : {std::string(), std::string("nonsense"), std::string("1 2 3 4")}) {
    std::vector<std::string> tickets = {segments[0]->ticket(), segments[1]->ticket(), last};
    std::vector<std::future<Reach>> reached;
    for (int r = 0; r < 2; ++r)
      reached.push_back(std::async(std::launch::async, [&, r] {
        auto own = std::make_unique<shm::Segment>();
        return shm::NodeMemory::create(std::move(own), r, tickets, std::chrono::steady_clock::now() + 60s, {})
            ->reach();
      }));
    for (auto& r : reached) CHECK(r.get() == Reach::None);
  }
}

TEST(a_rank_that_does_not_attach_is_awaited_until_the_deadline) {
  shm::Segment other;
  auto own = std::make_unique<shm::Segment>();
  const std::vector<std::string> tickets = {own->ticket(), other.ticket()};
  CHECK_THROWS(
      shm::NodeMemory::create(std::move(own), 0, tickets, std::chrono::steady_clock::now() + 50ms, {}), Error,
      "rank 1 of the group did not attach");
}

TEST(every_algorithm_moves_the_right_bytes) {
  each_shared([](const Algorithm& a) {
    for (const int p : {2, 3, 4}) {
      if (unit::kSanitized && p > 3) break;
      expect_right(a, p, {.env = env_of({{Env::algorithm_variable(a.collective), a.name}}), .node = true});
    }
  });
}

TEST(ranks_on_several_nodes_share_memory_inside_them) {
  for (const Algorithm& a : algorithms())
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 1, 0, 1, 0}}) {
      if (!a.two_level) continue;
      const Env env =
          env_of({{Env::algorithm_variable(a.collective), a.name}, {"MPI_GDR_CHUNK_BYTES", "100000"}});
      WorldOptions options{.env = env, .node = true};
      options.group.topology = std::make_shared<const Topology>(nodes);
      expect_right(a, static_cast<int>(nodes.size()), options);
    }
}

#if !defined(__SANITIZE_THREAD__)
// Whether the Inputs and Outputs that ranks access of each other belong to the ranks in bitmask `who`.
bool is_all_in_arenas(const Algorithm& algorithm, CollectiveSpec spec, int who) {
  bool all = true;
  for (spec.rank = 0; spec.rank < spec.size; ++spec.rank) {
    const SchedulePtr schedule = algorithm.build(spec, {});
    const auto look = [&](const Slice& slice) {
      const bool tensor = slice.buffer == Buffer::Input || slice.buffer == Buffer::Output;
      if (tensor && slice.count > 0 && slice.owner >= 0 && slice.owner != spec.rank)
        all = all && (who >> slice.owner & 1);
    };
    for (const Step& step : schedule->steps) {
      look(step.dst);
      for (const Slice& source : schedule->sources_of(step)) look(source);
    }
  }
  return all;
}

// Excluded under ThreadSanitizer, which identifies memory by address: in this one process the ranks see an
// arena at one address but the flags that order its use at several, which looks like a race. Each rank
// decides for itself whether its tensors are in group memory.
TEST(tensors_in_group_memory_and_others_match) {
  constexpr int kRanks = 3;
  const Arenas owned(kRanks);
  const auto& arenas = owned.all;
  const auto nodes = make_node(kRanks, arenas);
  auto* number = static_cast<int*>(arenas[1]->allocate(4));
  *number = 5;
  auto* seen = reinterpret_cast<int*>(nodes[0]->mapped(1, reinterpret_cast<std::uintptr_t>(number), 4));
  CHECK(seen && seen != number && *seen == 5);
  CHECK(!nodes[0]->mapped(2, reinterpret_cast<std::uintptr_t>(number), 4));
  arenas[1]->free(number);
  each_shared([&](const Algorithm& a) {
    std::vector<std::shared_ptr<Recorder>> recorders(kRanks);
    for (auto& recorder : recorders) recorder = std::make_shared<Recorder>();
    // The tensors' memory decides, not measurements.
    World world(kRanks,
                {.env = env_of({{Env::algorithm_variable(a.collective), a.name}, {"MPI_GDR_ADAPT", "off"}}),
                 .observers = {recorders.begin(), recorders.end()},
                 .node = true,
                 .arenas = arenas});
    world.run_and_close([&](int r) {
      for (const std::size_t count : {1u, 4099u, kLong})
        for (int who = 0; who < 8; ++who) {  // bitmask of the ranks with tensors in group memory
          Buffers b;
          CollectiveCall call = call_of(a.collective, r, kRanks, count, 1, b, false);
          std::vector<void*> blocks;
          const auto move = [&](const auto& vector, auto*& pointer) {
            const std::size_t bytes = vector.size() * sizeof(float);
            if (!(who >> r & 1) || bytes == 0) return;
            blocks.push_back(arenas[r]->allocate(bytes));
            CHECK(blocks.back() != nullptr);
            std::memcpy(blocks.back(), vector.data(), bytes);
            pointer = blocks.back();
          };
          move(b.input, call.input);
          move(b.output, call.output);
          world.wait(r, world.ranks[r].group->issue({call}, named("it", foreground())));
          expect_result(call);
          if (a.name == std::string_view("adaptive")) {
            const bool zero_copy = recorders[r]->ran.back() == "zero_copy";
            const bool to_all = a.collective == Collective::AllToAll;  // also with other memory
            CHECK(to_all ? zero_copy : zero_copy ? is_all_in_arenas(a, call.spec, who) : who != 7);
          }
          for (void* block : blocks) arenas[r]->free(block);
        }
    });
  });
}

TEST(memory_that_the_kernel_does_not_copy_goes_through_staging) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 2000;
  if (!has_secret_memory(kRanks * kCount * sizeof(float))) return;
  each_shared([&](const Algorithm& a) {
    if (a.name != std::string_view("adaptive")) return;
    std::vector<std::shared_ptr<Recorder>> recorders(kRanks);
    for (auto& recorder : recorders) recorder = std::make_shared<Recorder>();
    World world(kRanks, {.env = env_of({{Env::algorithm_variable(a.collective), a.name},
                                        {"MPI_GDR_CHUNK_BYTES", "4096"},
                                        {"MPI_GDR_ADAPT", "on"}}),
                         .observers = {recorders.begin(), recorders.end()},
                         .node = true});
    world.run_and_close([&](int r) {
      for (int i = 0; i < 20; ++i) {
        Buffers b;
        CollectiveCall call = call_of(a.collective, r, kRanks, kCount, 1, b, false);
        const bool input = i % 4 == 0;  // else the output, or no buffer
        const auto& moved = input ? b.input : b.output;
        std::optional<SecretMemory> secret;
        if (i % 2 == 0 && r == 1 && !moved.empty()) {
          secret.emplace(moved.size() * sizeof(float));
          CHECK(secret->memory != nullptr);
          std::memcpy(secret->memory, moved.data(), moved.size() * sizeof(float));
          if (input) call.input = secret->memory;
          if (!input || a.collective == Collective::Broadcast) call.output = secret->memory;
        }
        const bool anywhere = i % 2 == 0 && (input || a.collective != Collective::Broadcast);
        world.wait(r, world.ranks[r].group->issue({call}, named("it", foreground())));
        expect_result(call);
        const bool staged = recorders[r]->ran.back() == "staged";
        CHECK(!anywhere || staged);
        CHECK(a.collective != Collective::AllToAll || anywhere || !staged);
      }
    });
  });
}

// Ranks 0 and 1 exchange long blocks, rank 2 only short ones: it does not take part in the choice.
TEST(ranks_of_an_all_to_all_choose_alike) {
  constexpr int kRanks = 3;
  constexpr unsigned kLong = 4000, kShort = 10;
  if (!has_secret_memory(3 * kLong * sizeof(float))) return;
  const auto count = [](int from, int to) { return from + to == 1 ? kLong : kShort; };
  std::vector<std::shared_ptr<Recorder>> recorders(kRanks);
  for (auto& recorder : recorders) recorder = std::make_shared<Recorder>();
  World world(kRanks,
              {.env = env_of({{"MPI_GDR_ALLTOALL_ALGO", "adaptive"}, {"MPI_GDR_CHUNK_BYTES", "4096"}}),
               .observers = {recorders.begin(), recorders.end()},
               .node = true});
  world.run_and_close([&](int r) {
    for (int i = 0; i < 12; ++i) {
      const int apart = i % 4 - 1;  // the rank whose input the kernel cannot copy; others: none
      CollectiveCall call{.spec = {Collective::AllToAll, r, kRanks}};
      call.spec.dtype = DataType::Float32;
      std::vector<float> input, output;
      for (int q = 0; q < kRanks; ++q) {
        call.spec.send_counts.push_back(count(r, q));
        call.spec.recv_counts.push_back(count(q, r));
        input.resize(input.size() + count(r, q), static_cast<float>(100 * i + 10 * r + q));
        output.resize(output.size() + count(q, r), -1);
      }
      std::optional<SecretMemory> secret;
      if (r == apart) {
        secret.emplace(input.size() * sizeof(float));
        CHECK(secret->memory != nullptr);
        std::memcpy(secret->memory, input.data(), input.size() * sizeof(float));
      }
      call.input = secret ? secret->memory : input.data();
      call.output = output.data();
      world.wait(r, world.ranks[r].group->issue({call}, named("it", foreground())));
      std::size_t at = 0;
      for (int q = 0; q < kRanks; ++q)
        for (std::size_t k = 0; k < count(q, r); ++k)
          CHECK(output[at++] == static_cast<float>(100 * i + 10 * q + r));
      const bool staged = recorders[r]->ran.back() == "staged";
      CHECK(staged == (r < 2 && (apart == 0 || apart == 1)));
    }
  });
}
#endif

TEST(more_operations_than_slots_run_at_once) {
  for (const Algorithm& a : algorithms()) {
    if (!a.shared && !a.two_level) continue;
    WorldOptions options{.env = env_of({{Env::algorithm_variable(a.collective), a.name}}), .node = true};
    if (a.two_level) options.group.topology = std::make_shared<const Topology>(std::vector<int>{0, 0, 1});
    World world(3, options);
    world.run_and_close([&](int r) {
      Group& group = *world.ranks[r].group;
      for (int turn = 0; turn < (unit::kSanitized ? 2 : 5); ++turn) {
        std::vector<Buffers> buffers(60);
        std::vector<CollectiveCall> calls;
        std::vector<OperationPtr> ops;
        for (std::size_t i = 0; i < buffers.size(); ++i) {
          const std::size_t count = (i * 37 + static_cast<unsigned>(turn)) % 700;
          calls.push_back(
              call_of(a.collective, r, 3, count, static_cast<int>(i % 3), buffers[i], i % 2 == 0));
          ops.push_back(group.issue({calls.back()}, {{.name = "it"}}));
        }
        for (std::size_t i = 0; i < ops.size(); ++i) {
          world.wait(r, ops[i]);
          expect_result(calls[i]);
        }
      }
    });
  }
}

// Small operations begin, and may end, on the issuing thread, while the progress thread may hold them too.
TEST(buffers_without_a_waiter_are_released_at_the_end) {
  World world(2, {.node = true});
  constexpr int kRounds = 2000;
  std::atomic<int> by_issuer{0}, by_progress{0}, released{0};
  std::atomic<bool> second_may_issue{false};
  world.run([&](int r) {
    const std::thread::id issuer = std::this_thread::get_id();
    std::vector<float> data(kRounds * 2, 1.0f);
    const auto issue = [&](int round) {
      float* const at = data.data() + std::size_t(round) * 2;
      const CollectiveCall call{{Collective::AllReduce, r, 2, 0, 2, DataType::Float32}, at, at};
      IssueOptions options{{.name = "it"}};
      options.keepalive = std::shared_ptr<void>(data.data(), [&, issuer](void*) {
        char name[16] = {};
        pthread_getname_np(pthread_self(), name, sizeof name);
        if (std::string(name) == "mpigdr-progress") ++by_progress;
        if (std::this_thread::get_id() == issuer) ++by_issuer;
        ++released;
      });
      world.ranks[r].group->issue({call}, std::move(options));
    };
    // Rank 0 issues first: the later rank completes its own operation.
    if (r == 0) issue(0);
    if (r == 0) second_may_issue = true;
    while (!second_may_issue) std::this_thread::yield();
    if (r == 1) issue(0);
    for (int round = 1; round < kRounds; ++round) issue(round);
    world.ranks[r].engine->wait_all(*world.ranks[r].group);
    while (released < 2 * kRounds) std::this_thread::yield();  // or SIGALRM ends the test
  });
  CHECK(by_progress == 0);
  CHECK(by_issuer > 0);
  world.close();
}

TEST(a_missing_rank_is_named_at_the_deadline) {
  World world(
      3,
      {.group = {"test", 200ms, 32}, .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "zero_copy"}}), .node = true});
  auto& data = *new std::vector<float>(1000, 1.0f);  // leaked as the engine's failed operations are
  auto op = start(world, 0, data, foreground());
  CHECK_THROWS(world.wait(0, op), Error, "algorithm=zero_copy");
}

// The memory of a process that has ended is not read, even if its pid was reused.
TEST(memory_of_a_rank_that_has_gone_is_refused) {
  auto nodes = make_node(2);
  const auto number = std::make_unique<std::uint64_t>(7);
  std::uint64_t got = 0;
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(number.get());
  nodes[0]->read(1, &got, address, sizeof got);
  CHECK(got == 7);
  nodes[1].reset();  // the pid and the number are still valid
  const std::uint64_t other = 8;
  CHECK_THROWS(nodes[0]->read(1, &got, address, sizeof got), Error, "memory of rank 1");
  CHECK_THROWS(nodes[0]->write(1, address, &other, sizeof other), Error, "memory of rank 1");
  CHECK(*number == 7);
}

UNIT_MAIN_THAT_LEAKS()
