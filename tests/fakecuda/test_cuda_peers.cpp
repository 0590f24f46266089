// Processes with a software GPU each, or one for all: every algorithm on memory that devices share, bit for
// bit like host::reduce, eagerly and from graphs.
#include "peer_runs.hpp"

using namespace fakecuda_test;

namespace {

struct Setting {
  const char *queues = "8", *stream_words = "1", *delay_us = "0", *waits = "0", *slice_us = "0",
             *multiprocessors = "4", *depth = "1024";
  bool own_devices = false;  // a device for each rank
};

// Variables of the environment take precedence. FAKECUDA_SEED: for all ranks together.
void run_ranks(const Setting& setting, const std::function<void(PeerRank&)>& body) {
  const char* const given = std::getenv("FAKECUDA_SEED");
  const int seed = given ? std::atoi(given) : 1;
  for (int size = 2; size <= 4; ++size)
    run_processes<SharedAreas>(size, std::chrono::seconds(150), [&](int rank, World& world) {
      ::setenv("FAKECUDA_QUEUES", setting.queues, 0);
      ::setenv("FAKECUDA_STREAM_WORDS", setting.stream_words, 0);
      ::setenv("FAKECUDA_DELAY_US", setting.delay_us, 0);
      ::setenv("FAKECUDA_WAITS", setting.waits, 0);
      ::setenv("FAKECUDA_SLICE_US", setting.slice_us, 0);
      ::setenv("FAKECUDA_MULTIPROCESSORS", setting.multiprocessors, 0);
      ::setenv("FAKECUDA_DEPTH", setting.depth, 0);
      ::setenv("FAKECUDA_SEED", std::to_string(seed * 1000 + rank * 10 + size).c_str(), 1);
      if (setting.own_devices) ::setenv("FAKECUDA_DEVICES", std::to_string(size).c_str(), 1);
      PeerRank self(rank, size, world, setting.own_devices ? rank : 0);
      body(self);
      self.meet();
      self.check_canaries();
      self.node.reset();
      self.meet();
    });
}

using Counts = std::initializer_list<std::uint64_t>;

void run_everything(const Setting& setting, Grouping grouped, Counts counts = {1, 7, 100, 3000, 40003}) {
  run_ranks(setting, [&](PeerRank& self) { run_calls(self, all_calls(self.size, counts), grouped); });
}

}  // namespace

TEST(every_shared_algorithm) { run_everything({}, none); }

TEST(every_shared_algorithm_by_flag_kernels) { run_everything({.stream_words = "0"}, none); }

TEST(every_shared_algorithm_on_one_hardware_queue_with_delays) {
  run_everything({.queues = "1", .delay_us = "30"}, some);
}

TEST(group_memory_of_all_ranks) { run_everything({}, everything); }

// Every allocation between calls, and every submission to a full queue, waits for the device and blocks
// others.
TEST(group_memory_of_some_ranks_and_calls) {
  run_everything({.queues = "32", .stream_words = "0", .delay_us = "10", .waits = "1", .depth = "5"}, some);
}

TEST(a_device_for_each_rank) { run_everything({.own_devices = true}, some); }

// Without MPS: a polling kernel uses up its process's time slice, while another process must write the flag.
TEST(flag_kernels_of_processes_that_take_turns) {
  run_everything({.queues = "32", .stream_words = "0", .slice_us = "300"}, some, {1, 100, 3000});
}

// A fold has more blocks than fit, and polling kernels occupy their places.
TEST(one_multiprocessor) {
  run_everything({.queues = "32", .stream_words = "0", .multiprocessors = "1"}, some, {7, 3000});
}

TEST(writes_beside_what_a_call_has_are_seen) {
  run_processes<SharedAreas>(2, std::chrono::seconds(50), [](int rank, World& world) {
    PeerRank self(rank, 2, world);
    const Call call{
        find_algorithm(Collective::AllReduce, "staged"), 2, 1000, DataType::Float32, ReduceOp::Sum, 0};
    const auto it = self.prepare(call, tuning_of(1000), kSame);
    self.issue(*it);
    self.caller->synchronize();
    self.finish(*it);
    self.check_canaries();
    const auto before = static_cast<unsigned char*>(it->binding.output) - 1;
    for (void* const beside :
         {static_cast<void*>(before), static_cast<void*>(self.node->staging(rank, 1) - 1)}) {
      self.caller->copy(beside, it->given, 1);
      CHECK_THROWS(self.check_canaries(), Error, "was written");
      self.caller->copy(beside, static_cast<unsigned char*>(beside) - 1, 1);
      self.check_canaries();
    }
    self.close();
  });
}

// As if killed: it unmaps nothing and notifies no rank.
TEST(a_rank_that_is_gone_leaves_the_others_a_device_that_goes_on) {
  run_processes<SharedAreas>(3, std::chrono::seconds(150), [](int rank, World& world) {
    PeerRank self(rank, 3, world);
    const Call call{
        find_algorithm(Collective::AllReduce, "staged"), 3, 1000, DataType::Float32, ReduceOp::Sum, 0};
    const auto first = self.prepare(call, tuning_of(1000), kInput),
               second = self.prepare(call, tuning_of(1000), kInput);
    self.issue(*first);
    self.caller->synchronize();
    self.finish(*first);
    self.meet();
    if (rank == 1) leave(0);
    self.issue(*second);
    CHECK(!second->execution->advance());
    while (!second->execution->release_device()) std::this_thread::yield();
    self.caller->synchronize();
    self.node.reset();  // keeps what others may have mapped
    void* const memory = self.device.allocate(100);
    self.device.release(memory);
  });
}

TEST(graphs_are_replayed) {
  run_ranks({}, [](PeerRank& self) { replay_everything(self, 20); });
}

TEST(graphs_are_replayed_on_one_hardware_queue_with_delays) {
  run_ranks({.queues = "1", .delay_us = "10"}, [](PeerRank& self) { replay_everything(self, 20); });
}

int main(int argc, char** argv) { return unit::run(argc, argv, 600); }
