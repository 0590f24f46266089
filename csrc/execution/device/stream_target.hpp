// Where a collective on a device's memory runs, given with the call (IssueOptions::stream). All of it belongs
// to the caller, and is used by the issuing thread until issue() returns.
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
  std::span<DeviceQueue* const>
      queues;           // lanes are spread over them; as StreamExecution::launch() wants them
  DeviceQueue& caller;  // what it holds now comes before
  std::shared_ptr<StreamFlagPool> flags;
  // The transport does not take addresses of the device: messages go by way of host memory.
  bool through_host = true;
  // Memory for the operation, of the device and of the host, the latter within the device's reach. May wait
  // for the device. Let go of as IssueOptions::keepalive is. Throws NoMemory.
  std::function<std::shared_ptr<void>(std::size_t bytes)> device_memory, host_memory;
  // When all is submitted but the end: what is submitted to queues[0] now is the last of the operation.
  std::function<void()> conclude;
};

}  // namespace mpi_gdr
