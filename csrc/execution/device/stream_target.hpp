// The queues and memory of a collective on a device, passed with the call (IssueOptions::stream). The caller
// owns all of it; the issuing thread uses it until issue() returns.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "device/device.hpp"
#include "execution/device/stream_flags.hpp"

namespace mpi_gdr {

struct StreamTarget {
  Device& device;
  std::span<DeviceQueue* const> queues;  // of DeviceProgram::launch()
  DeviceQueue& caller;                   // the collective comes behind its earlier work
  std::shared_ptr<StreamFlagPool> flags;
  // Messages go through host memory, because the transport takes no addresses of the device.
  bool through_host = true;
  // Allocate memory for the operation, on the device or pinned on the host. May wait for the device. Freed as
  // IssueOptions::keepalive is. Throw NoMemory.
  std::function<std::shared_ptr<void>(std::size_t bytes)> device_memory, host_memory;
  // Called when all but the end is submitted: its work on queues[0] is the last of the operation.
  std::function<void()> conclude;
};

}  // namespace mpi_gdr
