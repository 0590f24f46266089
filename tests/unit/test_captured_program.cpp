// Collectives captured once and replayed: every shared-memory algorithm in graphs of the software CUDA, with
// eager collectives between, and replays whose peers do not come.
#include "execution/device/captured_program.hpp"
#include "execution/device/peer_execution.hpp"
#include "peer_meeting.hpp"

using namespace mpi_gdr;
using namespace stream_test;

namespace {

constexpr int kReplays = unit::kSanitized ? 15 : 40;

// One captured collective: input from `given`, which the host changes between replays.
struct Captured {
  Captured(const Algorithm& algorithm, Rank& rank, int size, std::uint64_t count, int index)
      : operation(algorithm, rank.rank(), size, count, index),
        given(operation.data.input),
        count(count),
        index(index) {
    operation.schedule = build_shared(algorithm, operation.spec);
  }
  // As Group::capture(), with copies before and after it.
  void record(Rank& rank, const ipc::DeviceNode& node, DeviceQueue& queue, DeviceQueue& caller) {
    void* const to = operation.data.in_place ? operation.output.data() : operation.input.data();
    caller.copy(to, given.data(), given.size() * sizeof(Element));
    rank.device.order(caller, queue);
    submit_captured(*operation.schedule, operation.binding, &node, queue);
    rank.device.order(queue, caller);
    operation.consume(caller);
  }
  void change(int replay) {
    data = make_data(operation.spec, count, index + 31 * replay);
    given = data.input;
  }
  void check(const char* when) const {
    if (operation.result != data.expected)
      fail(ErrorCode::Internal, "wrong result of ", operation.schedule->algorithm, " ",
           name(operation.spec.collective), " on rank ", operation.spec.rank, " ", when);
  }

  Operation operation;
  std::vector<Element> given;
  Data data;
  std::uint64_t count;
  int index;
};

struct Graph {
  std::vector<std::unique_ptr<Captured>> parts;
  std::shared_ptr<SoftwareGraph> graph;
};

// Captures every `step`-th of the shared algorithms from number `first` on.
Graph capture(Rank& rank, int size, const ipc::DeviceNode& node, DeviceQueue& queue, int first, int step,
              std::uint64_t count) {
  Graph made;
  DeviceQueue& caller = *rank.caller;
  rank.device.begin_capture(caller);
  int index = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (!runs_on_devices(algorithm) || algorithm.collective == Collective::Barrier || index++ % step != first)
      continue;
    made.parts.push_back(std::make_unique<Captured>(algorithm, rank, size, count, index));
    made.parts.back()->record(rank, node, queue, *rank.caller);
  }
  CHECK(rank.device.capturing(rank.caller->native()) && rank.device.capturing(queue.native()));
  made.graph = rank.device.end_capture(caller);
  CHECK(!rank.device.capturing(rank.caller->native()) && !rank.device.capturing(queue.native()));
  CHECK(made.parts.size() > 1);
  return made;
}

// Alternates two graphs, the second of larger tensors; some turns run an eager collective beside the replay.
void replay_everything(const Layout& layout) {
  on_node(layout, [&](Rank& rank, const NodePtr& node, Meeting&) {
    const auto queue = rank.device.make_queue();
    DeviceQueue& caller = *rank.caller;
    Graph graphs[2] = {capture(rank, layout.size, *node, *queue, 0, 2, 7),
                       capture(rank, layout.size, *node, *queue, 1, 2, 700)};
    std::mt19937 common(5);  // alike on all ranks
    std::uint64_t eager = 0;
    for (int replay = 0; replay < kReplays; ++replay) {
      std::unique_ptr<Operation> operation;
      std::shared_ptr<PeerExecution> execution;
      const auto issue_one = [&] {
        operation = issue(*find_algorithm(Collective::AllReduce, "staged"), rank, layout.size, 500,
                          static_cast<int>(eager++), node, execution);
      };
      const auto how = common() % 4;
      Graph& graph = graphs[common() % 2];
      for (auto& part : graph.parts) part->change(replay);
      if (how == 1) issue_one();
      rank.device.replay(*graph.graph, caller);
      if (how == 2) issue_one();
      if (how == 3) rank.device.replay(*graph.graph, caller);  // the same graph again at once
      caller.synchronize();
      for (auto& part : graph.parts) part->check(("in replay " + std::to_string(replay)).c_str());
      if (!operation) continue;
      CHECK(operation->right());
      while (!execution->advance()) std::this_thread::yield();
    }
  });
}

}  // namespace

TEST(replays_on_one_hardware_queue) {
  for (int size = 2; size <= 4; size += unit::kSanitized ? 2 : 1) replay_everything({size, 1, 3, 3});
}

TEST(replays_on_queues_of_their_own) {
  for (int size = 2; size <= 4; size += unit::kSanitized ? 2 : 1) replay_everything({size, 4, 2, 3});
}

TEST(replays_without_delays_in_a_row) {
  const int size = 3;
  on_node({size, 2, 1, 0}, [&](Rank& rank, const NodePtr& node, Meeting&) {
    const auto queue = rank.device.make_queue();
    DeviceQueue& caller = *rank.caller;
    Graph graph = capture(rank, size, *node, *queue, 0, 1, 50);
    for (auto& part : graph.parts) part->change(1);
    constexpr int kInARow = unit::kSanitized ? 100 : 300;
    for (int replay = 0; replay < kInARow; ++replay) rank.device.replay(*graph.graph, caller);
    caller.synchronize();
    for (auto& part : graph.parts) part->check("in the end");
  });
}

TEST(a_replay_released_without_its_peers_notifies_no_rank) {
  on_node({2, 2, 1, 0}, [&](Rank& rank, const NodePtr& node, Meeting& meeting) {
    const auto queue = rank.device.make_queue();
    DeviceQueue& caller = *rank.caller;
    Graph graph = capture(rank, 2, *node, *queue, 0, 1, 50);
    for (auto& part : graph.parts) part->change(1);
    rank.device.replay(*graph.graph, caller);
    caller.synchronize();
    for (auto& part : graph.parts) part->check("with all of its ranks");
    meeting.wait();
    if (rank.rank() == 0) {
      rank.device.replay(*graph.graph, caller);
      rank.device.replay(*graph.graph, caller);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK(!rank.device.idle(caller));
      node->release_replays();
      caller.synchronize();  // a flag that is never reached ends the process
      // Only the flags before the first wait were written.
      CHECK(node->ended(1, ipc::kGraphSlot, 0).load() >> 32 == graph.parts.size());
    }
  });
}

TEST(what_needs_the_host_is_not_captured) {
  std::string why;
  const CollectiveSpec spec = make_spec(Collective::AllReduce, 0, 2, 100, 0);
  CHECK(!can_be_captured(*find_algorithm(Collective::AllReduce, "ring")->build(spec, Tuning{}), why));
  CHECK_CONTAINS(why, "messages");
  why.clear();
  CHECK(can_be_captured(*build_shared(*find_algorithm(Collective::AllReduce, "flag"), spec), why));
}

UNIT_MAIN()
