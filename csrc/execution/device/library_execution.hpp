// A collective that NCCL runs inside a node. The host compares the calls and checks for failures.
//
// Threads: device_program.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "execution/device/node_program.hpp"
#include "transport/nccl/communicator.hpp"

namespace mpi_gdr {

nccl::Communicator::Arguments arguments_of(const Binding& binding);

class LibraryExecution : public NodeProgram {
 public:
  // `use`, `call`: of the communicator's flags, as in NodeProgram.
  LibraryExecution(std::shared_ptr<const std::vector<LibraryCall>> calls, const Binding& binding,
                   std::shared_ptr<nccl::Communicator> communicator, std::uint64_t use, std::uint32_t call,
                   std::shared_ptr<StreamFlagPool> flags);

 private:
  void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) override;
  bool carry() override;
  void release_waits() noexcept override;

  static constexpr std::chrono::milliseconds kBetweenLooks{100};
  const std::shared_ptr<const std::vector<LibraryCall>> calls_;
  const std::shared_ptr<nccl::Communicator> communicator_;
  // Progress role: at NCCL's error.
  std::chrono::steady_clock::time_point next_look_ = std::chrono::steady_clock::now() + kBetweenLooks;
};

}  // namespace mpi_gdr
