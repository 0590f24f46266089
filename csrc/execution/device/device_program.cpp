#include "execution/device/device_program.hpp"

#include <exception>
#include <utility>

#include "common/error.hpp"

namespace mpi_gdr {

DeviceProgram::DeviceProgram(std::size_t rounds, const Binding& binding, std::shared_ptr<StreamFlagPool> pool)
    : binding_(binding), flags_(pool->acquire(rounds + 1)), pool_(std::move(pool)) {}

DeviceProgram::~DeviceProgram() {
  with_device_.load(std::memory_order_acquire) ? pool_->leak() : pool_->release(flags_);
}

void DeviceProgram::launch(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller,
                           const std::function<void()>& conclude) {
  MPI_GDR_CHECK(!queues.empty());
  with_device_.store(true, std::memory_order_release);
  submit(device, queues, caller);
  if (conclude) conclude();
  queues[0]->write_flag(flags_.end(), flags_.base + 1);
}

void DeviceProgram::end_early(Device& device, std::span<DeviceQueue* const> queues) noexcept {
  with_device_.store(true, std::memory_order_release);
  try {
    for (std::size_t q = 1; q < queues.size(); ++q) device.order(*queues[q], *queues[0]);
    queues[0]->write_flag(flags_.drained(), flags_.base + 1);
  } catch (const std::exception&) {
    // The device accepts no work: its end cannot be observed.
  }
}

bool DeviceProgram::advance() {
  if (!done_ && carry()) {
    with_device_.store(false, std::memory_order_release);
    done_ = true;
  }
  return done_;
}

}  // namespace mpi_gdr
