// The interface of the shared library of a family of devices. It is a library of its own, so that the package
// needs neither toolkit nor driver where there is no such device.
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
  // The toolkit and targets that it was built with: "CUDA 13.0: sm_80, sm_90, PTX".
  virtual std::string built() const = 0;
  // Devices visible to this process; 0: `why` has the reason. Does not throw.
  virtual int device_count(std::string& why) = 0;
  // "NVIDIA H100 80GB HBM3, sm_90, 79.6 GiB, driver 13.0"
  virtual std::string describe(int index) = 0;
  // The first call constructs it, loads all kernels and may wait for the device: not while an operation is in
  // flight there. Throws InvalidUsage if there is no such device, System if it cannot be used.
  virtual Device& device(int index) = 0;
};

// Exported as kDeviceLibrarySymbol; returns null if built for another interface.
using DeviceLibraryFunction = DeviceLibrary* (*)(int interface);
inline constexpr const char* kDeviceLibrarySymbol = "mpi_gdr_device_library";

}  // namespace mpi_gdr
