#include "library.hpp"

#include "runtime.hpp"

namespace simgpu {

namespace {

class SimLibrary final : public mpigdr::DeviceLibrary {
 public:
  const char* name() const override { return "sim"; }

  std::string built() const override { return "the simulated accelerator of the tests"; }

  int device_count(std::string& why) override {
    const int count = in_bad_fork() ? 0 : settings().devices;
    if (!count)
      why = in_bad_fork() ? "this process was forked after the first use of simgpu" : "SIMGPU_DEVICES is 0";
    return count;
  }

  std::string describe(int index) override {
    return "simgpu:" + std::to_string(index) + ", host memory and " +
           std::to_string(settings().device.hardware_queues) + " threads";
  }

  mpigdr::Device& device(int index) override {
    if (index < 0 || index >= settings().devices)
      mpigdr::fail(mpigdr::ErrorCode::InvalidUsage, "there is no simgpu:", index);
    return gpu(static_cast<c10::DeviceIndex>(index)).device();
  }
};

}  // namespace

mpigdr::DeviceLibrary& device_library() {
  static SimLibrary* const library = new SimLibrary;
  return *library;
}

}  // namespace simgpu

extern "C" __attribute__((visibility("default"))) mpigdr::DeviceLibrary* mpigdr_device_library(
    int interface) {
  return interface == mpigdr::kDeviceInterface ? &simgpu::device_library() : nullptr;
}
