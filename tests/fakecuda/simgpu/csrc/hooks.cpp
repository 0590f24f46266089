// torch's hooks for an unknown accelerator.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "alias.hpp"
#include "host_memory.hpp"
#include "runtime.hpp"

namespace simgpu {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return started(); }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = current_device();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }

  bool isPinnedPtr(const void* data) const override { return host_memory().contains(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &host_memory(); }
  c10::Device getDeviceFromPtr(void*) const override { return c10::Device(kDevice, current_device()); }

  // The kernels run on the CPU, and so do their random numbers.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

}  // namespace simgpu
