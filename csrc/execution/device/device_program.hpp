// The device's part of an operation, as Group::issue() deals with it: submitted as a whole when the operation
// is issued.
#pragma once

#include <functional>
#include <span>

#include "device/device.hpp"
#include "execution/execution.hpp"

namespace mpi_gdr {

class DeviceProgram : public Execution {
 public:
  // Submits the whole device program behind what `caller` holds now, which may be the first of `queues`: call
  // once, after the operation was posted to the engine. `conclude` is called before its end is marked: what
  // it submits to queues[0] sees the results and belongs to the operation. Lanes are spread over `queues`, at
  // least one; `caller` may be one of them; with fewer queues than lanes the lanes share, which
  // costs overlap but is safe. The lists may differ between ranks; all ranks must launch the operations of a
  // group in the same order.
  virtual void launch(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller,
                      const std::function<void()>& conclude) = 0;
  // After launch() has thrown, or instead of it where another program of the operation could not be launched:
  // marks the end of what was submitted, for release_device(). Issuing thread.
  virtual void end_early(Device& device, std::span<DeviceQueue* const> queues) noexcept = 0;
  // Sets every flag that the device waits for. True once the device is through: until then it may have to be
  // done again. Any thread, any number of times.
  virtual bool release_device() noexcept = 0;
};

}  // namespace mpi_gdr
