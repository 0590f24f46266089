// All operations of a node's devices on shared memory: every shared algorithm with various types and
// operations, eagerly and from graphs.
#pragma once

#include <iterator>

#include "cuda_calls.hpp"
#include "device_algorithms.hpp"
#include "execution/device/captured_program.hpp"
#include "peer_rank.hpp"

namespace fakecuda_test {

struct Kind {
  DataType dtype;
  ReduceOp op;
};
inline constexpr Kind kKinds[] = {
    {DataType::Float32, ReduceOp::Sum},      {DataType::BFloat16, ReduceOp::Avg},
    {DataType::Int8, ReduceOp::BitXor},      {DataType::Complex64, ReduceOp::Sum},
    {DataType::Float8E4M3FN, ReduceOp::Sum}, {DataType::Int64, ReduceOp::Min},
    {DataType::Float16, ReduceOp::Max},      {DataType::Float64, ReduceOp::Product},
    {DataType::Float32, ReduceOp::PreMulSum}};

// A call of each algorithm, with changing kinds of elements. `number`: of the first call.
inline std::vector<Call> calls_of(int size, std::uint64_t count, int number) {
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

// Small chunks and little Staging, which is reused often; all of Staging for counts that need it.
inline Tuning tuning_of(std::uint64_t count) {
  if (count > 3000)
    return {.staging_bytes = ipc::kStagingBytes, .min_chunk_bytes = ipc::kStagingBytes, .in_place = true};
  return {.chunk_bytes = 64, .max_lanes = 3, .staging_bytes = 2048, .in_place = true};
}

// Which buffers of a call are in group memory (Grouped).
using Grouping = unsigned (*)(int rank, int number);
inline unsigned none(int, int) { return 0; }
inline unsigned everything(int, int number) { return number % 2 ? kSame : kInput | kOutput; }
inline unsigned some(int rank, int number) { return static_cast<unsigned>(rank * 5 + number * 3) % 8; }

// Holds up a queue until later work is submitted.
class Hold {
 public:
  explicit Hold(Device& device) : flag_(device.make_flags(1)) {}
  void on(DeviceQueue& queue) { queue.wait_flag(&flag_[0], ++held_); }
  // Sleeps first, so that work that is not held has begun.
  void release() {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    flag_[0].store(held_, std::memory_order_release);
  }

 private:
  const std::shared_ptr<Flag[]> flag_;
  std::uint64_t held_ = 0;
};

// Allocates between the calls. With `hold`, submits all before any begins.
inline void run_calls(PeerRank& self, const std::vector<Call>& calls, Grouping grouped,
                      Hold* hold = nullptr) {
  std::vector<std::unique_ptr<InFlight>> all;
  for (const Call& call : calls) {
    all.push_back(self.prepare(call, tuning_of(call.count), grouped(self.rank, call.number)));
    if (!hold) self.issue(*all.back());
  }
  if (hold) self.share_group_memory();
  if (hold) hold->on(*self.caller);
  for (const auto& it : all)
    if (hold) self.issue(*it);
  if (hold) hold->release();
  self.caller->synchronize();
  for (const auto& it : all) self.finish(*it);
}

inline std::vector<Call> all_calls(int size, std::initializer_list<std::uint64_t> counts) {
  std::vector<Call> calls;
  for (const std::uint64_t count : counts)
    for (const Call& call : calls_of(size, count, static_cast<int>(calls.size()))) calls.push_back(call);
  return calls;
}

// All that a graph can hold, replayed with new inputs.
inline void replay_everything(PeerRank& self, int replays, Hold* hold = nullptr) {
  const cudaStream_t native = make_stream();
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
  const cudaGraphExec_t exec = end_capture(native);
  for (int replay = 0; replay < replays; ++replay) {
    for (const auto& it : all) {
      it->call.number += 12 * 997;  // other inputs, the same root
      it->set_input(self.rank);
    }
    if (hold) hold->on(*caller);
    CHECK(cudaGraphLaunch(exec, native) == cudaSuccess);
    if (replay % 3 == 0) CHECK(cudaGraphLaunch(exec, native) == cudaSuccess);  // the same graph again at once
    if (hold) hold->release();
    caller->synchronize();
    for (const auto& it : all) it->check(self.rank);
  }
}

}  // namespace fakecuda_test
