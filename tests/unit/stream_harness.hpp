// All ranks of a group in one process, each with a device of the software CUDA, an issuing thread and a
// progress thread, and operations with known results.
#pragma once

#include "collective_data.hpp"
#include "doubles/loopback.hpp"
#include "execution/device/stream_execution.hpp"
#include "software_device.hpp"
#include "test.hpp"
#include "transport/ipc/device_arena.hpp"

namespace stream_test {

using namespace mpi_gdr;

// A progress thread advances the posted operations, as the engine would.
class Rank {
 public:
  Rank(std::unique_ptr<Transport> transport, const fakecuda::DeviceSettings& settings, int queue_count,
       std::size_t flag_blocks = 2)
      : transport_(std::move(transport)), device(settings), caller(device.make_queue()) {
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

  // Posts and launches; with `join`, orders the caller's queue behind it.
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

  // Waits until at most `count` operations are in flight. Throws the error of the device or the transport.
  void drain(std::size_t count = 0) {
    while (true) {
      {
        std::lock_guard lock(mutex_);
        if (error_) std::rethrow_exception(error_);
        if (posted_.size() <= count) return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Abandons all operations in flight, as the engine does after a deadline; returns them.
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
  SoftwareDevice device;
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
    const fakecuda::DeviceSettings settings{.queues = static_cast<std::uint64_t>(layout.hardware_queues),
                                            .delay_us = static_cast<std::uint64_t>(layout.max_delay_us),
                                            .seed = static_cast<std::uint64_t>(r) + 1};
    ranks.push_back(std::make_unique<Rank>(std::move(transports[r]), settings, layout.queues));
  }
  unit::on_threads(layout.size, [&](int r) { body(*ranks[r]); });
}

// One operation with memory of its own. The caller's queue writes the input just before it, and copies and
// poisons the output right after.
struct Operation : Planned {
  Operation(const Algorithm& algorithm, int rank, int size, std::uint64_t count, int index,
            bool by_host = false)
      : Planned(algorithm, rank, in_pairs(size), count, index, by_host) {
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
  }
  static std::vector<int> in_pairs(int size) {
    std::vector<int> nodes;
    for (int r = 0; r < size; ++r) nodes.push_back(r / 2);
    return nodes;
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

  std::vector<Element> input, output, result, poisoned, poisoned_input, scratch, bounce;
  std::shared_ptr<StreamExecution> execution;
};

}  // namespace stream_test
