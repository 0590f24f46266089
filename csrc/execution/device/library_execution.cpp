#include "execution/device/library_execution.hpp"

#include <utility>

#include "common/error.hpp"

namespace mpi_gdr {

nccl::Communicator::Arguments arguments_of(const Binding& binding) {
  return {binding.input, binding.output, binding.dtype, binding.op, binding.factor};
}

LibraryExecution::LibraryExecution(std::shared_ptr<const std::vector<LibraryCall>> calls,
                                   const Binding& binding, std::shared_ptr<nccl::Communicator> communicator,
                                   std::uint64_t use, std::uint32_t call,
                                   std::shared_ptr<StreamFlagPool> flags)
    : NodeProgram(0, binding, communicator->node(), use, call, std::move(flags)),
      calls_(std::move(calls)),
      communicator_(std::move(communicator)) {}

void LibraryExecution::submit(Device&, std::span<DeviceQueue* const> queues, DeviceQueue& caller) {
  announce_call();
  communicator_->submit(*calls_, arguments_of(binding_), caller, *queues[0]);
}

bool LibraryExecution::carry() {
  // A device that waits for a rank whose NCCL was aborted waits for ever.
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

void LibraryExecution::release_waits() noexcept {
  node_.publish_failed();
  communicator_->abort();
}

}  // namespace mpi_gdr
