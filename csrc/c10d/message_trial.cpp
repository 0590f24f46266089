#include "c10d/message_trial.hpp"

#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "c10d/this_job.hpp"

namespace mpi_gdr::torch_binding {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kAllocation = std::size_t{1} << 20;
constexpr std::chrono::seconds kPatience(2), kDeadline(10);

// Blocks the legacy stream, and with it most others, while a thread allocates and frees.
class Busy {
 public:
  Busy(DeviceStreams& on, Flag& flag)
      : device_(on.device()),
        guard_(on.where().type()),
        legacy_(guard_.getDefaultStream(on.where())),
        flag_(flag),
        other_([this] { allocate_and_free(); }) {
    try {
      on.queue(legacy_)->wait_flag(&flag_, 1);
    } catch (...) {
      stop();
      throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the thread waits for the device
  }
  ~Busy() {
    stop();
    guard_.synchronizeStream(legacy_);  // the flag is unused then
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void stop() {
    flag_.store(1, std::memory_order_release);
    over_ = true;
    other_.join();
  }
  void allocate_and_free() noexcept {
    try {
      while (!over_) device_.release(device_.allocate(kAllocation));
    } catch (const std::exception&) {  // no memory to free
    }
  }

  Device& device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream legacy_;
  Flag& flag_;
  std::atomic<bool> over_{false};
  std::thread other_;  // last: uses the others
};

}  // namespace

MessageTrial::MessageTrial(DeviceStreams& on, int rank, int size, std::size_t bytes)
    : on_(on), before_((rank + size - 1) % size), after_((rank + 1) % size), bytes_(bytes) {
  const at::TensorOptions options = at::TensorOptions(on.where()).dtype(at::kByte);
  const auto count = static_cast<std::int64_t>(bytes);
  memory_ = std::make_shared<Memory>(
      Memory{at::full({count}, rank % 255, options), at::full({count}, 255, options)});
  flag_ = on.device().make_flags(1);
  c10::impl::VirtualGuardImpl(on.where().type()).synchronizeStream(on.current());
  this_job().engine().serve(on.device());
}

bool MessageTrial::run(Group& group) {
  const auto message = [&](bool send, const at::Tensor& tensor, int peer) {
    return MessageCall{send, tensor.mutable_data_ptr(), bytes_, peer, group.max_tag()};
  };
  IssueOptions options;
  options.name = "messages of a device's memory, tried";
  options.channel = Channel::PointToPoint;
  options.keepalive = memory_;
  options.timeout = kDeadline;
  OperationPtr operation;
  bool in_time = false;
  {
    std::optional<Busy> busy;
    try {
      busy.emplace(on_, flag_[0]);
    } catch (const std::exception&) {  // peers still wait for the message
    }
    operation =
        group.issue({message(false, memory_->received, before_), message(true, memory_->sent, after_)},
                    std::move(options));
    const auto deadline = Clock::now() + kPatience;
    while (!(in_time = operation->finished()) && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    in_time &= busy.has_value();
  }
  group.engine().wait(*operation);
  return memory_->received.eq(before_ % 255).all().item<bool>() && in_time;
}

}  // namespace mpi_gdr::torch_binding
