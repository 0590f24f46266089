// Processes with a software GPU each, or one for all: every algorithm on memory that devices share, bit for
// bit as the host folds it, at once and from graphs.
#include <cuda_runtime_api.h>

#include "engine/captured_program.hpp"
#include "peer_rank.hpp"
#include "test.hpp"

using namespace fakecuda_test;

namespace {

struct Setting {
  const char *queues = "8", *stream_words = "1", *delay_us = "0", *waits = "0", *slice_us = "0",
             *multiprocessors = "4";
  bool own_devices = false;  // a device for each rank
};

// What the environment gives stays. FAKECUDA_SEED: of all ranks together.
void run_ranks(const Setting& setting, const std::function<void(PeerRank&)>& body) {
  const char* const given = std::getenv("FAKECUDA_SEED");
  const int seed = given ? std::atoi(given) : 1;
  for (int size = 2; size <= 4; ++size)
    run_processes<Tickets>(size, std::chrono::seconds(150), [&](int rank, World& world) {
      ::setenv("FAKECUDA_QUEUES", setting.queues, 0);
      ::setenv("FAKECUDA_STREAM_WORDS", setting.stream_words, 0);
      ::setenv("FAKECUDA_DELAY_US", setting.delay_us, 0);
      ::setenv("FAKECUDA_WAITS", setting.waits, 0);
      ::setenv("FAKECUDA_SLICE_US", setting.slice_us, 0);
      ::setenv("FAKECUDA_MULTIPROCESSORS", setting.multiprocessors, 0);
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

bool runs_on_devices(const Algorithm& algorithm) {
  return algorithm.build && algorithm.shared && std::strcmp(algorithm.name, "direct") != 0;
}

struct Kind {
  DataType dtype;
  ReduceOp op;
};
constexpr Kind kKinds[] = {{DataType::Float32, ReduceOp::Sum},      {DataType::BFloat16, ReduceOp::Avg},
                           {DataType::Int8, ReduceOp::BitXor},      {DataType::Complex64, ReduceOp::Sum},
                           {DataType::Float8E4M3FN, ReduceOp::Sum}, {DataType::Int64, ReduceOp::Min},
                           {DataType::Float16, ReduceOp::Max},      {DataType::Float64, ReduceOp::Product},
                           {DataType::Float32, ReduceOp::PreMulSum}};

// Every algorithm with another kind of elements each time; number `number` is the first one.
std::vector<Call> calls_of(int size, std::uint64_t count, int number) {
  std::vector<Call> calls;
  for (const Algorithm& algorithm : algorithms()) {
    if (!runs_on_devices(algorithm)) continue;
    const Kind kind = kKinds[static_cast<std::size_t>(number) % std::size(kKinds)];
    const bool reduces = algorithm.collective == Collective::AllReduce ||
                         algorithm.collective == Collective::Reduce ||
                         algorithm.collective == Collective::ReduceScatter;
    calls.push_back({&algorithm, size, count, kind.dtype, reduces ? kind.op : ReduceOp::Sum, number++});
  }
  return calls;
}

// Small chunks, so that Staging is used again and again, but for what is larger than those need.
Tuning tuning_of(std::uint64_t count) {
  if (count > 3000) return {.staging_bytes = ipc::kStagingBytes, .in_place = true};
  return {.chunk_bytes = 64, .max_lanes = 3, .staging_bytes = 2048, .in_place = true};
}

using Counts = std::initializer_list<std::uint64_t>;

// `grouped`: by rank and number of the call.
void run_everything(PeerRank& self, unsigned (*grouped)(int rank, int number),
                    Counts counts = {1, 7, 100, 3000, 40003}) {
  std::vector<std::unique_ptr<InFlight>> all;
  for (const std::uint64_t count : counts)
    for (const Call& call : calls_of(self.size, count, static_cast<int>(all.size()))) {
      all.push_back(self.prepare(call, tuning_of(count), grouped(self.rank, call.number)));
      self.issue(*all.back());
    }
  CHECK(all.size() >= counts.size() * 8);
  self.caller->synchronize();
  for (const auto& it : all) self.finish(*it);
}

unsigned none(int, int) { return 0; }
unsigned everything(int, int number) { return number % 2 ? kSame : kInput | kOutput; }
unsigned some(int rank, int number) { return static_cast<unsigned>(rank * 5 + number * 3) % 8; }

// All that a graph can hold, replayed with other inputs each time.
void replay_everything(PeerRank& self) {
  cudaStream_t native;
  CHECK(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking) == cudaSuccess);
  const auto caller = self.device.adopt(native), queue = self.device.make_queue();
  std::vector<std::unique_ptr<InFlight>> all;
  for (const Call& call : calls_of(self.size, 700, 0)) {
    auto prepared = self.prepare(call, tuning_of(700), 0);
    std::string why;
    if (can_be_captured(*prepared->schedule, why)) all.push_back(std::move(prepared));
  }
  CHECK(all.size() >= 8);
  CHECK(!self.device.capturing(native));
  CHECK(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  for (const auto& it : all) {
    self.give(*it, *caller);
    self.device.order(*caller, *queue);
    submit_captured(*it->schedule, it->binding, self.node.get(), *queue);
    self.device.order(*queue, *caller);
    self.take(*it, *caller);
  }
  CHECK(self.device.capturing(native));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamEndCapture(native, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  for (int replay = 0; replay < 20; ++replay) {
    for (const auto& it : all) {
      it->call.number += 12 * 997;  // another input, the same root
      it->set_input(self.rank);
    }
    CHECK(cudaGraphLaunch(exec, native) == cudaSuccess);
    if (replay % 3 == 0) CHECK(cudaGraphLaunch(exec, native) == cudaSuccess);  // the same once more, at once
    caller->synchronize();
    for (const auto& it : all) it->check(self.rank);
  }
}

}  // namespace

TEST(every_shared_algorithm) {
  run_ranks({}, [](PeerRank& self) { run_everything(self, none); });
}

TEST(every_shared_algorithm_by_flag_kernels) {
  run_ranks({.stream_words = "0"}, [](PeerRank& self) { run_everything(self, none); });
}

TEST(every_shared_algorithm_on_one_hardware_queue_with_delays) {
  run_ranks({.queues = "1", .delay_us = "30"}, [](PeerRank& self) { run_everything(self, some); });
}

TEST(group_memory_of_all_ranks) {
  run_ranks({}, [](PeerRank& self) { run_everything(self, everything); });
}

// Where every allocation between two calls waits for the device, and lets nobody else in.
TEST(group_memory_of_some_ranks_and_calls) {
  run_ranks({.queues = "32", .stream_words = "0", .delay_us = "10", .waits = "1"},
            [](PeerRank& self) { run_everything(self, some); });
}

TEST(a_device_for_each_rank) {
  run_ranks({.own_devices = true}, [](PeerRank& self) { run_everything(self, some); });
}

// Without MPS: a kernel that polls burns the time slice of its process, while the flag is another one's to
// write.
TEST(flag_kernels_of_processes_that_take_turns) {
  run_ranks({.queues = "32", .stream_words = "0", .slice_us = "300"},
            [](PeerRank& self) { run_everything(self, some, {1, 100, 3000}); });
}

// A fold has more blocks than fit, and kernels that poll take their places.
TEST(one_multiprocessor) {
  run_ranks({.queues = "32", .stream_words = "0", .multiprocessors = "1"},
            [](PeerRank& self) { run_everything(self, some, {7, 3000}); });
}

TEST(writes_beside_what_a_call_has_are_seen) {
  run_processes<Tickets>(2, std::chrono::seconds(50), [](int rank, World& world) {
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
    self.meet();
    self.node.reset();
    self.meet();
  });
}

// As if it had been killed: it unmaps nothing and tells nobody.
TEST(a_rank_that_is_gone_leaves_the_others_a_device_that_goes_on) {
  run_processes<Tickets>(3, std::chrono::seconds(150), [](int rank, World& world) {
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
    self.node.reset();  // which leaves behind what others may have mapped
    void* const memory = self.device.allocate(100);
    self.device.release(memory);
  });
}

TEST(graphs_are_replayed) { run_ranks({}, replay_everything); }

TEST(graphs_are_replayed_on_one_hardware_queue_with_delays) {
  run_ranks({.queues = "1", .delay_us = "10"}, replay_everything);
}

int main(int argc, char** argv) { return unit::run(argc, argv, 600); }
