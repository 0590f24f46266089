// The shared library's exported function, and its devices, each opened on first use.
#include "device/library.hpp"

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "common/error.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/gpu_api.hpp"

namespace mpi_gdr {
namespace {

class CudaLibrary : public DeviceLibrary {
 public:
  const char* name() const override { return "cuda"; }

  std::string built() const override {
    return "CUDA " + std::to_string(CUDART_VERSION / 1000) + "." +
           std::to_string(CUDART_VERSION % 1000 / 10) + ": " MPI_GDR_CUDA_TARGETS;
  }

  int device_count(std::string& why) override {
    if (!gpu::driver_present(why)) return 0;
    int count = 0;
    const auto status = GPU(GetDeviceCount)(&count);
    if (status != GPU(Success)) {
      static_cast<void>(GPU(GetLastError)());
      why = gpu::text(status);
      return 0;
    }
    if (count == 0) why = gpu::text(GPU(ErrorNoDevice));
    return count;
  }

  std::string describe(int index) override {
    expect(index);
    gpu::Properties properties;
    GPU_CALL(index, GetDeviceProperties, &properties, index);
    char text[384];
    std::snprintf(text, sizeof text, "%s, sm_%d%d, %.1f GiB, driver %s", properties.name, properties.major,
                  properties.minor, static_cast<double>(properties.totalGlobalMem) / (1 << 30),
                  gpu::driver_version().c_str());
    return text;
  }

  Device& device(int index) override {
    expect(index);
    std::lock_guard lock(mutex_);
    std::unique_ptr<CudaDevice>& device = devices_[index];
    if (!device) device = std::make_unique<CudaDevice>(index);
    return *device;
  }

 private:
  void expect(int index) {
    std::string why;
    const int count = device_count(why);
    if (index >= 0 && index < count) return;
    if (count == 0) fail(ErrorCode::InvalidUsage, "device=", index, ": no device is available: ", why);
    fail(ErrorCode::InvalidUsage, "device=", index, " is not in 0..", count - 1);
  }

  std::mutex mutex_;
  std::map<int, std::unique_ptr<CudaDevice>> devices_;
};

}  // namespace
}  // namespace mpi_gdr

extern "C" __attribute__((visibility("default"))) mpi_gdr::DeviceLibrary* mpi_gdr_device_library(
    int interface) {
  // Never destroyed: the driver may end before the process does.
  static auto* const library = new mpi_gdr::CudaLibrary;
  return interface == mpi_gdr::kDeviceInterface ? library : nullptr;
}
