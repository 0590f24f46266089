// What the shared library of a family of devices offers to its loader. The library is one of its own,
// so that the package needs neither the family's toolkit nor its driver where there is no such device.
#pragma once

#include <string>

#include "device/device.hpp"

namespace mpi_gdr {

// Changes with every virtual function of DeviceLibrary, Device and DeviceQueue.
inline constexpr int kDeviceInterface = 6;

// Thread-safe. Lives as long as the process.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;
  virtual const char* name() const = 0;  // "cuda"
  // What it was built for: "CUDA 13.0: sm_80, sm_90, PTX".
  virtual std::string built() const = 0;
  // Visible to this process. 0: `why` says why there is none. Does not throw.
  virtual int device_count(std::string& why) = 0;
  // "NVIDIA H100 80GB HBM3, sm_90, 79.6 GiB, driver 13.0"
  virtual std::string describe(int index) = 0;
  // Made by the first call, which loads all kernels and may wait for the device: not while an operation is in
  // flight there. Throws InvalidUsage if there is no such device, System if it cannot be used.
  virtual Device& device(int index) = 0;
};

// What the shared library exports under the name kDeviceLibrarySymbol; null if it was built for another
// interface.
using DeviceLibraryFunction = DeviceLibrary* (*)(int interface);
inline constexpr const char* kDeviceLibrarySymbol = "mpi_gdr_device_library";

}  // namespace mpi_gdr
