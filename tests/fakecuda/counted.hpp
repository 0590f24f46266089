// Driver calls and memory traffic of an all_reduce on one rank, in the steady state.
#pragma once

#include "cuda_calls.hpp"
#include "cudart/counters.hpp"
#include "execution/device/captured_program.hpp"
#include "peer_rank.hpp"

namespace fakecuda_test {

struct CountedCall {
  const char *name, *algorithm;
  std::uint64_t count;  // of float32
  bool grouped;         // in place in group memory
};

struct Counts {
  std::uint64_t calls = 0;     // calls that put work on a stream or into a graph
  std::uint64_t launches = 0;  // kernels among them
  std::uint64_t waits = 0;     // calls that wait, or may wait, for the whole device
  std::uint64_t read = 0, written = 0, peer_read = 0, peer_written = 0;  // bytes of one run
};
struct BothCounts {
  Counts at_once, in_graph;
};

// Adds the difference between the ends of its lifetime.
class Counting {
 public:
  explicit Counting(Counts& counts) : counts_(counts) { add(-1); }
  ~Counting() { add(1); }
  Counting(const Counting&) = delete;

 private:
  void add(int sign) {
    const auto put = [&](std::uint64_t& count, std::uint64_t value) {
      count += static_cast<std::uint64_t>(sign) * value;
    };
    put(counts_.calls, fakecuda::calls_with_work());
    put(counts_.launches, fakecuda::calls()["cudaLaunchKernel"]);
    put(counts_.waits, fakecuda::device_wide_waits());
  }
  Counts& counts_;
};

// Counts the traffic of `run`, which must wait for its work.
inline void count_traffic(Counts& counts, const std::function<void()>& run) {
  const fakecuda::Traffic before = fakecuda::traffic();
  run();
  const fakecuda::Traffic after = fakecuda::traffic();
  const auto moved = [](const auto& from, const auto& to, fakecuda::Where where) {
    return to[static_cast<std::size_t>(where)] - from[static_cast<std::size_t>(where)];
  };
  counts.read = moved(before.read, after.read, fakecuda::Where::Own);
  counts.written = moved(before.written, after.written, fakecuda::Where::Own);
  counts.peer_read = moved(before.read, after.read, fakecuda::Where::Peer);
  counts.peer_written = moved(before.written, after.written, fakecuda::Where::Peer);
}

inline cudaGraphExec_t capture(PeerRank& self, const InFlight& it, cudaStream_t native, DeviceQueue& caller,
                               Counts& counts) {
  const auto queue = self.device.make_queue();
  ok(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal));
  {
    const Counting counting(counts);
    self.device.order(caller, *queue);
    submit_captured(*it.schedule, it.binding, self.node.get(), *queue);
    self.device.order(*queue, caller);
  }
  return end_capture(native);
}

// Call it on every rank. Counts after both slots were used and group memory was mapped; checks the results.
inline BothCounts count_all_reduce(PeerRank& self, const CountedCall& call) {
  const Tuning tuning{
      .staging_bytes = ipc::kStagingBytes, .min_chunk_bytes = ipc::kStagingBytes, .in_place = true};
  const Call all_reduce{find_algorithm(Collective::AllReduce, call.algorithm),
                        self.size,
                        call.count,
                        DataType::Float32,
                        ReduceOp::Sum,
                        0};
  const auto it = self.prepare(all_reduce, tuning, call.grouped ? kSame : 0u);
  BothCounts both;
  for (int i = 0; i < 4; ++i) {  // the last one counts
    both.at_once = {};
    self.meet();
    self.give(*it, *self.caller);
    self.caller->synchronize();
    count_traffic(both.at_once, [&] {
      {
        const Counting counting(both.at_once);
        self.submit(*it);
      }
      self.caller->synchronize();
    });
    self.take(*it, *self.caller);
    self.caller->synchronize();
    while (!it->execution->advance()) std::this_thread::yield();
  }
  it->check(self.rank);
  const cudaStream_t native = make_stream();
  const auto caller = self.device.adopt(native);
  const cudaGraphExec_t exec = capture(self, *it, native, *caller, both.in_graph);
  for (int i = 0; i < 2; ++i) {
    self.give(*it, *caller);
    caller->synchronize();
    count_traffic(both.in_graph, [&] {
      ok(cudaGraphLaunch(exec, native));
      caller->synchronize();
    });
    self.take(*it, *caller);
    caller->synchronize();
  }
  it->check(self.rank);
  return both;
}

// The counts by rank. Each rank is a process with its own device.
inline std::vector<BothCounts> count_on_ranks(int size, const CountedCall& call, std::chrono::seconds limit) {
  void* const page =
      ::mmap(nullptr, sizeof(BothCounts) * 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const counts = static_cast<BothCounts*>(page);
  run_processes<SharedAreas>(size, limit, [&](int rank, World& world) {
    ::setenv("FAKECUDA_DEVICES", std::to_string(size).c_str(), 1);
    ok(cudaSetDevice(rank));
    PeerRank self(rank, size, world, rank);
    counts[rank] = count_all_reduce(self, call);
    self.close();
  });
  std::vector<BothCounts> all(counts, counts + size);
  ::munmap(page, sizeof(BothCounts) * 8);
  return all;
}

}  // namespace fakecuda_test
