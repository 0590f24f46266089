// A stream of the simulated device. Several may share a hardware queue, and then run in the order of
// submission.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/device.hpp"
#include "device/sim/sim_graph.hpp"

namespace mpigdr {

class SimDevice;

// A place in the line of a hardware queue: reached when all work submitted there up to it has run. What an
// event stands for from one record to the next. Default: a place reached from the start.
struct SimMark {
  SimDevice* device = nullptr;
  int hardware_queue = 0;
  std::uint64_t number = 0;
  // Of a stream that is captured: a place in what is recorded, which is never reached, and an error to ask
  // for.
  std::shared_ptr<SimCapture> capture = nullptr;
  SimCapture::Past past = {};

  bool reached() const;
  // Blocks the host until it is reached. Throws what has failed the device.
  void synchronize() const;
};

// Thread-safe. Must not outlive its SimDevice.
class SimQueue : public DeviceQueue {
 public:
  SimQueue(SimDevice& device, int hardware_queue);
  // The same stream once more.
  SimQueue(const SimQueue& stream) = default;

  void wait_flag(const Flag* flag, std::uint32_t at_least) override;
  void write_flag(Flag* flag, std::uint32_t value) override;
  void wait_flag64(const Flag64* flag, std::uint64_t at_least) override;
  void write_flag64(Flag64* flag, std::uint64_t value) override;
  void count_replay(const Replays& replays) override;
  void wait_replay(const Flag64* flag, const Replays& replays, std::uint32_t ago,
                   std::uint32_t number) override;
  void write_replay(Flag64* flag, const Replays& replays, std::uint32_t number) override;
  void copy(void* dst, const void* src, std::size_t bytes) override;
  void reduce(const ReduceArgs& args) override;
  void resolve(const ResolveArgs& args) override;
  void reduce(const ResolvedReduce& args) override;
  // For the work of this stream alone, not for what others have put behind it into the same hardware queue.
  void synchronize() override;
  void* native() override { return static_cast<DeviceQueue*>(this); }

  // Work of the caller's own, run by the worker. What it throws fails the device (SimDevice).
  SimMark enqueue(std::function<void()> work);
  // Behind all work so far.
  SimMark mark();
  // Later work waits until `mark` is reached, which may be one of another device. If it is one of a capture,
  // this stream is captured as well from now on.
  void wait(SimMark mark);
  bool idle();

  // From now on work is recorded, not run, on this stream and on those that wait for it. The host may not ask
  // then how far they are. All of it throws InvalidUsage where a GPU would refuse.
  void begin_capture();
  // On the stream that began.
  std::shared_ptr<SimGraph> end_capture();
  bool capturing();
  // Puts one run of the graph in line.
  void replay(SimGraph& graph);

 private:
  using Item = SimCapture::Item;
  struct State;  // one for all queues that stand for the stream
  SimMark submit(Item item);
  void check_idle_may_be_asked(const char* call);

  SimDevice* device_;
  int hardware_queue_;
  std::shared_ptr<State> state_;
};

}  // namespace mpigdr
