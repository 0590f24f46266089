#include "torch/message_trial.hpp"

#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "torch/world.hpp"

namespace mpigdr::torch_binding {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kBytes = 1 << 20;  // beyond what is sent eagerly
constexpr std::chrono::seconds kPatience(2);

// Until the end of the block: the legacy stream, behind which most others come, waits, and a thread allocates
// and frees.
class Busy {
 public:
  explicit Busy(DeviceStreams& on)
      : device_(on.device()),
        guard_(on.current().device_type()),
        legacy_(guard_.getDefaultStream(on.where())) {
    flag_ = device_.make_flags(1);
    on.queue(legacy_)->wait_flag(&flag_[0], 1);
    other_ = std::thread([this] { allocate_and_free(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // by then it waits for the device
  }
  ~Busy() {
    flag_[0].store(1, std::memory_order_release);
    over_ = true;
    other_.join();
    guard_.synchronizeStream(legacy_);  // and the flag is free
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void allocate_and_free() noexcept {
    try {
      while (!over_) device_.release(device_.allocate(kBytes));
    } catch (const std::exception&) {  // no memory: then there is nothing to free
    }
  }

  Device& device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream legacy_;
  std::shared_ptr<Flag[]> flag_;
  std::atomic<bool> over_{false};
  std::thread other_;
};

}  // namespace

bool messages_move(Group& group, DeviceStreams& on, int rank, int size) {
  struct Memory {
    at::Tensor sent, received;
  };
  const at::TensorOptions bytes = at::TensorOptions(on.where()).dtype(at::kByte);
  const auto memory =
      std::make_shared<Memory>(Memory{at::full({kBytes}, rank % 255, bytes), at::full({kBytes}, 255, bytes)});
  c10::impl::VirtualGuardImpl(on.where().type()).synchronizeStream(on.current());
  World::get().engine().serve(on.device());
  const int before = (rank + size - 1) % size, after = (rank + 1) % size;
  const auto message = [&](bool send, const at::Tensor& tensor, int peer) {
    return MessageCall{send, tensor.mutable_data_ptr(), kBytes, peer, group.max_tag()};
  };
  IssueOptions options;
  options.name = "messages of a device's memory, tried";
  options.channel = Channel::PointToPoint;
  options.keepalive = memory;
  OperationPtr operation;
  bool in_time = false;
  {
    const Busy busy(on);
    operation =
        group.issue({message(false, memory->received, before), message(true, memory->sent, after)}, options);
    const auto deadline = Clock::now() + kPatience;
    while (!(in_time = operation->finished()) && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  World::get().engine().wait(*operation);
  return memory->received.eq(before % 255).all().item<bool>() && in_time;
}

}  // namespace mpigdr::torch_binding
