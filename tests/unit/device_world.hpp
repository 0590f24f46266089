// Ranks with a device each below Group and Engine, and operations for them.
#pragma once

#include "engine_world.hpp"
#include "execution/device/gate.hpp"
#include "execution/device/stream_target.hpp"
#include "node_areas.hpp"
#include "software_device.hpp"

namespace engine_tests {

// Records the threads that enter it; flags can be made to run out.
class FailingDevice : public SoftwareDevice {
 public:
  using SoftwareDevice::SoftwareDevice;
  std::shared_ptr<Flag[]> make_flags(std::size_t count) override {
    if (out_of_flags) fail(ErrorCode::System, "no more flags");
    return SoftwareDevice::make_flags(count);
  }
  void enter_thread() override {
    entered.push_back(std::this_thread::get_id());
    SoftwareDevice::enter_thread();
  }
  std::atomic<bool> out_of_flags{false};
  std::vector<std::thread::id> entered;  // not synchronized: one thread only
};

// A rank's queues and flags on its device. Leaked: abandoned operations keep using them.
struct Gpu {
  // More flags than operations in flight, since making more waits for the device.
  explicit Gpu(int hardware_queues, std::uint64_t seed, std::size_t flag_blocks = 64, int streams = 2)
      : device({.queues = static_cast<std::uint64_t>(hardware_queues), .delay_us = 30, .seed = seed}),
        caller(device.make_queue()),
        side(device.make_queue()) {
    for (int q = 0; q < streams; ++q) owned.push_back(device.make_queue());
    for (const auto& queue : owned) queues.push_back(queue.get());
    flags = std::make_shared<StreamFlagPool>(device, flag_blocks);
  }
  static std::shared_ptr<void> memory(std::size_t bytes) {
    return {std::malloc(bytes ? bytes : 1), [](void* block) { std::free(block); }};
  }
  StreamTarget target(bool through_host) {
    StreamTarget target{device, queues, *caller, flags};
    target.through_host = through_host;
    target.device_memory = target.host_memory = memory;
    return target;
  }

  FailingDevice device;
  std::unique_ptr<DeviceQueue> caller, side;
  std::vector<std::unique_ptr<DeviceQueue>> owned;
  std::vector<DeviceQueue*> queues;
  std::shared_ptr<StreamFlagPool> flags;
};

inline std::vector<Gpu*> make_gpus(int size, int hardware_queues = 3) {
  std::vector<Gpu*> gpus;
  for (int r = 0; r < size; ++r) gpus.push_back(new Gpu(hardware_queues, static_cast<std::uint64_t>(r) + 1));
  return gpus;
}

inline std::vector<float>& unfreed(std::size_t count, float value) {
  return *new std::vector<float>(count, value);
}

inline std::vector<std::shared_ptr<ipc::DeviceNode>> share_staging(World& world,
                                                                   const std::vector<Gpu*>& gpus) {
  const int size = static_cast<int>(gpus.size());
  std::vector<std::shared_ptr<ipc::DeviceNode>> nodes;
  const std::vector<ipc::Areas> areas = unit::make_areas(size);
  for (int r = 0; r < size; ++r) {
    nodes.push_back(std::make_shared<ipc::DeviceNode>(gpus[r]->device, r, areas[r]));
    nodes.back()->publish();
  }
  for (int r = 0; r < size; ++r) {
    const auto& node = nodes[r];
    std::string why;
    CHECK(node->attach(why));
    world.ranks[r].group->share_devices(node);
  }
  return nodes;
}

// An all_reduce of data that the caller's queue writes just before; the queue copies the result right after.
struct Reduction {
  Reduction(World& world, int r, Gpu& gpu, std::size_t count, float value, bool through_host = true,
            std::optional<std::chrono::nanoseconds> timeout = {}, std::function<void()> conclude = nullptr)
      : source(unfreed(count, value)), data(unfreed(count, -1)), result(unfreed(count, -2)) {
    gpu.caller->copy(data.data(), source.data(), count * sizeof(float));
    IssueOptions options{{.name = "all_reduce"}, Channel::Accelerator, timeout};
    StreamTarget target = gpu.target(through_host);
    target.conclude = std::move(conclude);
    options.stream = &target;
    operation = world.ranks[r].group->issue({all_reduce(world, r, data)}, std::move(options));
    gpu.device.order(*gpu.queues[0], *gpu.caller);
    gpu.caller->copy(result.data(), data.data(), count * sizeof(float));
    gpu.caller->copy(data.data(), source.data(), count * sizeof(float));
  }
  bool is(float value) const {
    return std::all_of(result.begin(), result.end(), [&](float x) { return x == value; });
  }

  std::vector<float>&source, &data, &result;
  OperationPtr operation;
};

// A message as the binding issues it: begins once `queue` has reached the gate.
struct GatedMessage {
  GatedMessage(World& world, int r, Gpu& gpu, MessageCall call, DeviceQueue& queue)
      : gate(std::make_shared<Gate>(gpu.flags)) {
    gate->enter(queue);
    IssueOptions options{{.name = call.send ? "send" : "recv"}};
    options.gate = gate;
    operation = world.ranks[r].group->issue({call}, std::move(options));
  }
  std::shared_ptr<Gate> gate;
  OperationPtr operation;
};

}  // namespace engine_tests
