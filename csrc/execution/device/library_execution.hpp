// A collective that NCCL runs inside a node. The host compares the calls and checks for failures.
//
// Threads: device_program.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "execution/device/node_program.hpp"
#include "transport/nccl/communicator.hpp"

namespace mpi_gdr {

inline nccl::Communicator::Arguments arguments_of(const Binding& binding) {
  return {binding.input, binding.output, binding.dtype, binding.op, binding.factor};
}

class LibraryExecution : public NodeProgram {
 public:
  // `use`, `call`: of the communicator's flags, as in NodeProgram.
  LibraryExecution(std::shared_ptr<const std::vector<LibraryCall>> calls, const Binding& binding,
                   std::shared_ptr<nccl::Communicator> communicator, std::uint64_t use, std::uint32_t call,
                   std::shared_ptr<StreamFlagPool> flags)
      : NodeProgram(0, binding, communicator->node(), use, call, std::move(flags)),
        calls_(std::move(calls)),
        communicator_(std::move(communicator)) {}

 private:
  void submit(Device&, std::span<DeviceQueue* const> queues, DeviceQueue& caller) override {
    announce_call();
    communicator_->submit(*calls_, arguments_of(binding_), caller, *queues[0]);
  }
  bool carry() override {
    // `true` although this device may not have ended: it never ends if another rank has aborted NCCL.
    look_for_failures(true);
    if (const auto now = std::chrono::steady_clock::now(); now >= next_look_) {
      next_look_ = now + kBetweenLooks;
      if (const std::string text = communicator_->error(); !text.empty()) fail(ErrorCode::System, text);
    }
    if (!NodeProgram::carry()) return false;
    const int rank = node_.rank();
    node_.each_peer([&](int r) { raise(node_.ended(r, slot_, rank), stamp(0)); });
    return true;
  }
  void release_waits() noexcept override {
    node_.publish_failed();
    communicator_->abort();
  }

  static constexpr std::chrono::milliseconds kBetweenLooks{100};
  const std::shared_ptr<const std::vector<LibraryCall>> calls_;
  const std::shared_ptr<nccl::Communicator> communicator_;
  // With the progress role: when to query NCCL's error next.
  std::chrono::steady_clock::time_point next_look_ = std::chrono::steady_clock::now() + kBetweenLooks;
};

}  // namespace mpi_gdr
