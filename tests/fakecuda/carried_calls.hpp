// Ranks in one process whose messages the host carries, from a software GPU's buffers or through host memory:
// device and host programs joined by flags (execution/device/stream_execution.hpp).
#pragma once

#include "collective_data.hpp"
#include "doubles/loopback.hpp"
#include "execution/device/stream_execution.hpp"
#include "peer_runs.hpp"

namespace fakecuda_test {

using stream_test::Element;

class CarriedRank {
 public:
  CarriedRank(Device& device, std::unique_ptr<Transport> transport)
      : device(device),
        caller(device.make_queue()),
        host(device),
        transport_(std::move(transport)),
        owned_{device.make_queue(), device.make_queue()},
        flags_(std::make_shared<StreamFlagPool>(device, 128)),
        bounce_(host.take(kBounceBytes)) {}

  struct Carried : stream_test::Planned {
    using Planned::Planned;
    Element *given = nullptr, *result = nullptr;
    std::shared_ptr<StreamExecution> execution;
  };

  std::unique_ptr<Carried> prepare(const Algorithm& algorithm, int size, int index, bool by_host) {
    auto made = std::make_unique<Carried>(algorithm, transport_->rank(), std::vector<int>(size, 0), kCount,
                                          index, by_host);
    const std::size_t in = made->data.input.size() * sizeof(Element),
                      out = made->data.expected.size() * sizeof(Element);
    made->given = reinterpret_cast<Element*>(host.take(in));
    made->result = reinterpret_cast<Element*>(host.take(out));
    std::copy(made->data.input.begin(), made->data.input.end(), made->given);
    Binding& binding = made->binding;
    binding.input = device.allocate(in);
    binding.output = device.allocate(std::max(in, out));
    binding.scratch = device.allocate(made->schedule->scratch_count * sizeof(Element));
    binding.bounce = bounce_;  // shared: calls run one after the other
    if (made->schedule->bounce_count * sizeof(Element) > kBounceBytes)
      fail(ErrorCode::Internal, "too little bounce memory for this test");
    return made;
  }

  void issue(Carried& it) {
    void* const to = it.data.in_place ? it.binding.output : const_cast<void*>(it.binding.input);
    caller->copy(to, it.given, it.data.input.size() * sizeof(Element));
    it.execution = std::make_shared<StreamExecution>(it.schedule, it.binding, *transport_, flags_);
    DeviceQueue* queues[] = {owned_[0].get(), owned_[1].get()};
    it.execution->launch(device, queues, *caller);
    device.order(*queues[0], *caller);
    caller->copy(it.result, it.binding.output, it.data.expected.size() * sizeof(Element));
  }

  // Sleeps first, so that the device waits for the host.
  void finish(Carried& it) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (!it.execution->advance()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  static void check(const Carried& it) {
    if (!std::equal(it.data.expected.begin(), it.data.expected.end(), it.result))
      fail(ErrorCode::Internal, "wrong result of ", it.schedule->algorithm, " ", name(it.spec.collective),
           " on rank ", it.spec.rank);
  }

  Device& device;
  const std::unique_ptr<DeviceQueue> caller;
  HostMemory host;

 private:
  static constexpr std::uint64_t kCount = 100;
  static constexpr std::size_t kBounceBytes = std::size_t{1} << 16;
  const std::unique_ptr<Transport> transport_;
  const std::array<std::unique_ptr<DeviceQueue>, 2> owned_;
  const std::shared_ptr<StreamFlagPool> flags_;
  void* const bounce_;
};

// Every algorithm with messages; all are submitted before any begins.
inline void carry_everything(CarriedRank& self, int size, Hold& hold, bool by_host) {
  std::vector<std::unique_ptr<CarriedRank::Carried>> all;
  for (const Algorithm& algorithm : stream_test::scheduled_algorithms())
    all.push_back(self.prepare(algorithm, size, static_cast<int>(all.size()), by_host));
  hold.on(*self.caller);
  for (const auto& it : all) self.issue(*it);
  hold.release();
  for (const auto& it : all) self.finish(*it);
  self.caller->synchronize();
  for (const auto& it : all) CarriedRank::check(*it);
}

}  // namespace fakecuda_test
