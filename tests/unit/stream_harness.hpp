// All ranks of a group in one process, each with a simulated device, an issuing thread and a progress thread,
// and operations with known results to run on them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/collectives.hpp"
#include "device/sim/sim_device.hpp"
#include "doubles/loopback.hpp"
#include "execution/device/stream_execution.hpp"
#include "schedule/through_host.hpp"
#include "transport/ipc/device_arena.hpp"

namespace stream_test {

using namespace mpigdr;

using Element = std::int32_t;

// One rank: device, transport, and a progress thread that advances what is posted, as the engine would.
class Rank {
 public:
  Rank(std::unique_ptr<Transport> transport, const SimOptions& options, int queue_count,
       std::size_t flag_blocks = 2)
      : transport_(std::move(transport)), device(options), caller(device.make_queue()) {
    for (int q = 0; q < queue_count; ++q) owned_.push_back(device.make_queue());
    for (const auto& queue : owned_) queues.push_back(queue.get());
    flags = std::make_shared<StreamFlagPool>(device, flag_blocks);
    progress_ = std::thread([this] { progress(); });
  }

  ~Rank() {
    stop_.store(true, std::memory_order_release);
    progress_.join();
    ipc::DeviceArena::forget(device);
  }

  int rank() const { return transport_->rank(); }

  // Posts, launches, and orders the caller's queue behind it.
  std::shared_ptr<StreamExecution> run(SchedulePtr schedule, const Binding& binding, bool join = true) {
    auto operation = std::make_shared<StreamExecution>(std::move(schedule), binding, *transport_, flags);
    {
      std::lock_guard lock(mutex_);
      posted_.push_back(operation);
    }
    operation->launch(device, queues, *caller);
    if (join) device.order(*queues[0], *caller);
    return operation;
  }

  // Waits until at most `count` operations are in flight. Throws what failed on the device or the transport.
  void drain(std::size_t count = 0) {
    while (true) {
      device.check();
      {
        std::lock_guard lock(mutex_);
        if (error_) std::rethrow_exception(error_);
        if (posted_.size() <= count) return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Gives up everything in flight, as the engine does after a deadline; the executions are kept.
  std::vector<std::shared_ptr<StreamExecution>> abandon() {
    std::lock_guard lock(mutex_);
    for (auto& operation : posted_) operation->abandon();
    return std::move(posted_);
  }

  std::vector<int> pending_peers() {
    std::lock_guard lock(mutex_);
    return posted_.empty() ? std::vector<int>{} : posted_.front()->pending_peers();
  }

 private:
  void progress() {
    while (!stop_.load(std::memory_order_acquire)) {
      {
        std::lock_guard lock(mutex_);
        try {
          std::erase_if(posted_, [](auto& operation) { return operation->advance(); });
        } catch (...) {
          error_ = std::current_exception();
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  const std::unique_ptr<Transport> transport_;

 public:
  SimDevice device;
  const std::unique_ptr<DeviceQueue> caller;
  std::vector<DeviceQueue*> queues;
  std::shared_ptr<StreamFlagPool> flags;

 private:
  std::vector<std::unique_ptr<DeviceQueue>> owned_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<StreamExecution>> posted_;
  std::exception_ptr error_;
  std::atomic<bool> stop_{false};
  std::thread progress_;
};

struct Layout {
  int size = 1;
  int hardware_queues = 1;
  int queues = 1;
  int max_delay_us = 30;
};

// Runs `body(rank)` on a thread per rank and rethrows the first failure.
inline void on_all_ranks(const Layout& layout, const std::function<void(Rank&)>& body,
                         LoopbackOptions options = {}) {
  auto transports = make_loopback(layout.size, options);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < layout.size; ++r) {
    SimOptions sim;
    sim.hardware_queues = layout.hardware_queues;
    sim.max_delay = std::chrono::microseconds(layout.max_delay_us);
    sim.seed = static_cast<std::uint64_t>(r) + 1;
    sim.deadline = std::chrono::milliseconds(15000);
    ranks.push_back(std::make_unique<Rank>(std::move(transports[r]), sim, layout.queues));
  }
  std::vector<std::exception_ptr> errors(layout.size);
  std::vector<std::thread> threads;
  for (int r = 0; r < layout.size; ++r)
    threads.emplace_back([&, r] {
      try {
        body(*ranks[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

// ---- what a collective should give ----

inline Element value(int rank, std::uint64_t i, int salt) {
  return static_cast<Element>((rank + 2) * 1000 + static_cast<int>(i % 911) + 7 * salt);
}

inline std::uint64_t pair_count(int from, int to, std::uint64_t count) {
  return count * static_cast<std::uint64_t>((from + 2 * to) % 3);  // uneven, some are empty
}

inline CollectiveSpec make_spec(Collective collective, int rank, int size, std::uint64_t count, int root) {
  CollectiveSpec spec;
  spec.collective = collective;
  spec.rank = rank;
  spec.size = size;
  spec.root = has_root(collective) ? root : 0;
  spec.count = collective == Collective::Barrier || collective == Collective::AllToAll ? 0 : count;
  spec.dtype = DataType::Int32;
  if (collective == Collective::AllToAll)
    for (int r = 0; r < size; ++r) {
      spec.send_counts.push_back(pair_count(rank, r, count));
      spec.recv_counts.push_back(pair_count(r, rank, count));
    }
  return spec;
}

// On these nodes. `count`: as of make_spec().
inline void place_on(const std::vector<int>& nodes, std::uint64_t count, CollectiveSpec& spec) {
  spec.topology = std::make_shared<const Topology>(nodes);
  const auto& neighbours = spec.topology->members(spec.topology->node(spec.rank));
  if (spec.collective != Collective::AllToAll || neighbours.size() == 1) return;
  for (const int from : neighbours)
    for (int to = 0; to < spec.size; ++to) spec.node_counts.push_back(pair_count(from, to, count));
}

struct Data {
  std::vector<Element> input, expected;
  bool in_place = false;  // the collective works on the output alone (broadcast)
};

inline Data make_data(const CollectiveSpec& spec, std::uint64_t count, int salt) {
  const int p = spec.size, rank = spec.rank;
  const auto size = static_cast<std::uint64_t>(p);
  Data data;
  const auto fill = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) data.input.push_back(value(rank, i, salt));
  };
  const auto sum = [&](std::uint64_t i) {
    Element total = 0;
    for (int r = 0; r < p; ++r) total += value(r, i, salt);
    return total;
  };
  switch (spec.collective) {
    case Collective::AllReduce:
      fill(count);
      for (std::uint64_t i = 0; i < count; ++i) data.expected.push_back(sum(i));
      break;
    case Collective::Broadcast:
      fill(count);
      data.in_place = true;
      for (std::uint64_t i = 0; i < count; ++i) data.expected.push_back(value(spec.root, i, salt));
      break;
    case Collective::Reduce:
      fill(count);
      for (std::uint64_t i = 0; rank == spec.root && i < count; ++i) data.expected.push_back(sum(i));
      break;
    case Collective::AllGather:
      fill(count);
      for (int r = 0; r < p; ++r)
        for (std::uint64_t i = 0; i < count; ++i) data.expected.push_back(value(r, i, salt));
      break;
    case Collective::ReduceScatter:
      fill(size * count);
      for (std::uint64_t i = 0; i < count; ++i)
        data.expected.push_back(sum(static_cast<std::uint64_t>(rank) * count + i));
      break;
    case Collective::AllToAll:
      for (int r = 0; r < p; ++r) fill(spec.send_counts[r]);
      for (std::uint64_t i = 0; i < data.input.size(); ++i) data.input[i] = value(rank, i, salt);
      for (int r = 0; r < p; ++r) {
        std::uint64_t first = 0;  // where rank r's block for us begins in its input
        for (int to = 0; to < rank; ++to) first += pair_count(r, to, count);
        for (std::uint64_t i = 0; i < spec.recv_counts[r]; ++i)
          data.expected.push_back(value(r, first + i, salt));
      }
      break;
    case Collective::Gather:
      fill(count);
      for (int r = 0; rank == spec.root && r < p; ++r)
        for (std::uint64_t i = 0; i < count; ++i) data.expected.push_back(value(r, i, salt));
      break;
    case Collective::Scatter:
      if (rank == spec.root) fill(size * count);
      for (std::uint64_t i = 0; i < count; ++i)
        data.expected.push_back(value(spec.root, static_cast<std::uint64_t>(rank) * count + i, salt));
      break;
    case Collective::Barrier:
      break;
  }
  return data;
}

// One operation with memory of its own. The input is produced by an item just before it on the caller's
// queue, the output is consumed and poisoned right after.
struct Operation {
  // `by_host`: its messages go by way of host memory. Two-level algorithms see two ranks to a node.
  Operation(const Algorithm& algorithm, int rank, int size, std::uint64_t count, int index,
            bool by_host = false) {
    const Tuning tuning{.chunk_bytes = 64, .max_lanes = 3};
    spec = make_spec(algorithm.collective, rank, size, count, index % size);
    if (algorithm.two_level) {
      std::vector<int> nodes;
      for (int r = 0; r < size; ++r) nodes.push_back(r / 2);
      place_on(nodes, count, spec);
    }
    schedule = algorithm.build(spec, tuning);
    if (by_host) schedule = through_host(*schedule);
    data = make_data(spec, count, index);
    input.assign(data.input.size(), -1);
    output.assign(std::max(data.expected.size(), data.in_place ? data.input.size() : 0), -2);
    result.assign(data.expected.size(), -3);
    poisoned.assign(output.size(), -4);
    poisoned_input.assign(input.size(), -7);
    scratch.assign(schedule->scratch_count, -5);
    bounce.assign(schedule->bounce_count, -6);
    binding.input = input.data();
    binding.output = output.data();
    binding.scratch = scratch.data();
    binding.bounce = bounce.data();
    binding.dtype = DataType::Int32;
    binding.channel = Channel::Accelerator;
    binding.tag_base = (index % 500) * kMaxLanes;
  }

  void produce(DeviceQueue& caller) {
    void* const to = data.in_place ? binding.output : const_cast<void*>(binding.input);
    caller.copy(to, data.input.data(), data.input.size() * sizeof(Element));
  }
  void consume(DeviceQueue& caller) {
    caller.copy(result.data(), binding.output, result.size() * sizeof(Element));
    caller.copy(binding.output, poisoned.data(), poisoned.size() * sizeof(Element));
    caller.copy(const_cast<void*>(binding.input), poisoned_input.data(),
                poisoned_input.size() * sizeof(Element));
  }
  void issue(Rank& rank, bool join = true) {
    produce(*rank.caller);
    execution = rank.run(schedule, binding, join);
    if (join) consume(*rank.caller);
  }
  bool right() const { return result == data.expected; }

  CollectiveSpec spec;
  SchedulePtr schedule;
  Data data;
  std::vector<Element> input, output, result, poisoned, poisoned_input, scratch, bounce;
  Binding binding;
  std::shared_ptr<StreamExecution> execution;
};

// But for bruck's all_to_all: the blocks here are of different sizes.
inline std::vector<Algorithm> scheduled_algorithms(const char* only = nullptr) {
  std::vector<Algorithm> found;
  for (const Algorithm& algorithm : algorithms())
    if (!algorithm.native() && !algorithm.shared &&
        !(algorithm.collective == Collective::AllToAll && std::string(algorithm.name) == "bruck") &&
        (!only || std::strcmp(name(algorithm.collective).data(), only) == 0))
      found.push_back(algorithm);
  return found;
}

}  // namespace stream_test
