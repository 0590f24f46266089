// Schedules that the devices of a node run by themselves on shared memory: every such algorithm on the
// software CUDA, all ranks in one process, and missing ranks.
#include "peer_meeting.hpp"

using namespace mpi_gdr;
using ipc::DeviceArena;
using namespace stream_test;

namespace {

std::vector<int> sizes() {
  if (unit::kSanitized) return {2, 5};
  return {2, 3, 4, 5};
}

std::vector<std::uint64_t> counts() {
  if (unit::kSanitized) return {1, 3000};
  return {1, 7, 100, 3000};
}

// `grouped`: the buffers in group memory, by rank and operation.
void run_everything(const Layout& layout, unsigned (*grouped)(int rank, int index) = nullptr) {
  on_node(layout, [&](Rank& rank, const NodePtr& node, Meeting&) {
    std::vector<std::unique_ptr<Operation>> operations;
    std::vector<std::shared_ptr<PeerExecution>> executions;
    int index = 0;
    for (const std::uint64_t count : counts())
      for (const Algorithm& algorithm : algorithms()) {
        if (!runs_on_devices(algorithm)) continue;
        executions.emplace_back();
        operations.push_back(issue(algorithm, rank, layout.size, count, index, node, executions.back(),
                                   grouped ? grouped(rank.rank(), index) : 0));
        ++index;
      }
    rank.caller->synchronize();
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (!operations[i]->right())
        fail(ErrorCode::Internal, "wrong result of ", operations[i]->schedule->algorithm, " ",
             name(operations[i]->spec.collective), " on rank ", rank.rank(), " of ", layout.size);
      while (!executions[i]->advance()) std::this_thread::yield();
      CHECK(executions[i]->rounds_done() == 1);
    }
  });
}

}  // namespace

TEST(every_shared_algorithm_on_one_hardware_queue) {
  for (const int size : sizes()) run_everything({size, 1, 3, 5});
}

TEST(every_shared_algorithm_on_queues_of_their_own) {
  for (const int size : sizes()) run_everything({size, 4, 2, 5});
}

// New segments are mapped while the operations run.
TEST(group_memory_of_all_ranks) {
  for (const int size : sizes()) {
    run_everything({size, 1, 3, 5}, [](int, int) -> unsigned { return kInput | kOutput; });
    run_everything({size, 4, 2, 5},
                   [](int, int index) -> unsigned { return index % 2 ? kSame : kInput | kOutput; });
  }
}

TEST(group_memory_of_some_ranks_and_operations) {
  for (const int size : sizes())
    run_everything({size, 3, 2, 5}, [](int rank, int index) -> unsigned {
      return static_cast<unsigned>(rank * 5 + index * 3) % 8;
    });
}

TEST(group_memory_does_not_go_through_staging) {
  Meeting meeting(3);
  on_all_ranks({3, 2, 1, 0}, [&](Rank& rank) {
    DeviceArena& arena = DeviceArena::of(rank.device);
    arena.free(arena.allocate(1));  // makes a segment that all ranks map when they meet
    const auto node = meeting.meet(rank);
    int index = 0;
    for (const Collective collective :
         {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter})
      for (const unsigned grouped : {unsigned{kInput | kOutput}, unsigned{kInput | kOutput | kSame}, 0u}) {
        std::byte* const staging = node->staging(rank.rank(), index % ipc::kSlots);
        std::memset(staging, 0x5e, 2048);
        meeting.wait();
        std::shared_ptr<PeerExecution> execution;
        const auto operation =
            issue(*find_algorithm(collective, "staged"), rank, 3, 3000, index++, node, execution, grouped);
        rank.caller->synchronize();
        CHECK(operation->right());
        while (!execution->advance()) std::this_thread::yield();
        meeting.wait();
        const bool untouched =
            std::all_of(staging, staging + 2048, [](std::byte b) { return b == std::byte{0x5e}; });
        CHECK(untouched == (grouped != 0));
        meeting.wait();
      }
  });
}

// A rank that abandoned the operation may have reused the memory.
TEST(group_memory_of_a_rank_that_gave_up_is_not_touched) {
  Meeting meeting(3);
  on_all_ranks({3, 2, 1, 0}, [&](Rank& rank) {
    DeviceArena& arena = DeviceArena::of(rank.device);
    arena.free(arena.allocate(1));
    const auto node = meeting.meet(rank);
    const Algorithm& algorithm = *find_algorithm(Collective::AllReduce, "staged");
    std::shared_ptr<PeerExecution> execution;
    if (rank.rank() == 2) {  // late; rank 1 never comes
      while (node->failed(2, 0).load() == 0) std::this_thread::yield();
      meeting.wait();
    }
    const auto operation =
        rank.rank() == 1 ? nullptr : issue(algorithm, rank, 3, 3000, 0, node, execution, kInput | kSame);
    if (rank.rank() == 2) {
      node->failed(2, 1).store(1);  // as if rank 1 had given up as well
      execution->abandon();
      rank.caller->synchronize();
    }
    if (rank.rank() == 0) {
      execution->abandon();
      rank.caller->synchronize();
      auto* const mine = static_cast<Element*>(operation->binding.output);
      std::fill(mine, mine + 3000, 77);
      meeting.wait();
      meeting.wait();
      CHECK(std::count(mine, mine + 3000, 77) == 3000);
    } else {
      if (rank.rank() == 1) meeting.wait();
      meeting.wait();
    }
  });
}

TEST(a_rank_that_does_not_come_is_named_and_its_peers_can_go_on) {
  on_node({3, 2, 1, 0}, [&](Rank& rank, const NodePtr& node, Meeting&) {
    if (rank.rank() != 1) {
      std::shared_ptr<PeerExecution> execution;
      const Algorithm* const algorithm = find_algorithm(Collective::AllReduce, "flag");
      const auto operation = issue(*algorithm, rank, 3, 50, 0, node, execution);
      const int other = 2 - rank.rank();
      while (node->called(rank.rank(), 0, other).load() == 0) std::this_thread::yield();
      CHECK(!execution->advance());
      CHECK(execution->pending_peers() == std::vector<int>{1});
      execution->abandon();
      rank.caller->synchronize();  // a flag that is never reached ends the process
      // The other rank's result is invalid, since it abandoned the operation as well.
      while (node->failed(rank.rank(), other).load() == 0) std::this_thread::yield();
      const std::string error = unit::error_of([&] { execution->advance(); });
      CHECK(error.starts_with(name(ErrorCode::Remote)) && unit::contains(error, "abandoned"));
    }
  });
}

TEST(calls_that_differ_are_distinguished) {
  on_node({2, 2, 1, 0}, [&](Rank& rank, const NodePtr& node, Meeting&) {
    Operation operation(*find_algorithm(Collective::AllReduce, "flag"), rank.rank(), 2, 50, 0);
    operation.schedule = build_shared(*find_algorithm(Collective::AllReduce, "flag"), operation.spec);
    PeerExecution execution(operation.schedule, operation.binding, node, 0, rank.rank() == 0 ? 7u : 8u,
                            rank.flags);
    execution.launch(rank.device, rank.queues, *rank.caller, nullptr);
    const std::string error = unit::error_of([&] {
      while (!execution.advance()) std::this_thread::yield();
    });
    CHECK(error.starts_with(name(ErrorCode::Mismatch)) && unit::contains(error, "another collective"));
    for (DeviceQueue* queue : rank.queues) queue->synchronize();
  });
}

// Only the two ranks that exchange data can compare counts.
TEST(an_all_to_all_whose_counts_differ_fails) {
  for (const bool sender : {true, false}) {
    on_node({3, 2, 1, 0}, [&](Rank& rank, const NodePtr& node, Meeting&) {
      Operation operation(*find_algorithm(Collective::AllToAll, "staged"), rank.rank(), 3, 50, 0);
      auto [sends, receives] = std::tie(operation.spec.send_counts, operation.spec.recv_counts);
      if (rank.rank() == 1) --(sender ? sends[2] : receives[2]);
      operation.schedule = build_shared(*find_algorithm(Collective::AllToAll, "staged"), operation.spec);
      operation.binding.send_counts = sends;
      operation.binding.recv_counts = receives;
      PeerExecution execution(operation.schedule, operation.binding, node, 0, 7, rank.flags);
      execution.launch(rank.device, rank.queues, *rank.caller, nullptr);
      const std::string error = unit::error_of([&] {
        while (!execution.advance()) std::this_thread::yield();
      });
      CHECK_CONTAINS(error, rank.rank() == 0 ? "" : "another number of elements");
      CHECK(rank.rank() != 0 || error == "");
      for (DeviceQueue* queue : rank.queues) queue->synchronize();
    });
  }
}

TEST(a_rank_without_memory_to_share_is_refused) {
  SoftwareDevice device;
  ipc::DeviceNode node(device, 0, unit::make_areas(2)[0]);
  node.publish();
  std::string why;
  CHECK(!node.attach(why));
  CHECK_CONTAINS(why, "rank 1 has no device memory to share");
}

UNIT_MAIN()
