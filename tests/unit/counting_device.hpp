// A device that counts its calls and on which memory, queues or handles can be made to fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/error.hpp"
#include "software_device.hpp"
#include "transport/ipc/device_arena.hpp"

namespace mpi_gdr {

constexpr std::size_t kMiB = 1 << 20;

class CountingDevice : public SoftwareDevice {
 public:
  ~CountingDevice() override { ipc::DeviceArena::forget(*this); }
  void* allocate(std::size_t bytes) override {
    if (bytes > most) throw NoMemory(bytes, "the test's device");
    ++allocations;
    return SoftwareDevice::allocate(bytes);
  }
  void release(void* memory) override {
    ++releases;
    SoftwareDevice::release(memory);
  }
  std::unique_ptr<DeviceQueue> make_queue() override {
    if (!queues) fail(ErrorCode::System, "no queues here");
    return SoftwareDevice::make_queue();
  }
  void synchronize() override {
    ++synchronizations;
    if (meanwhile) meanwhile();
    if (broken) fail(ErrorCode::System, "the device is broken");
    SoftwareDevice::synchronize();
  }
  std::string export_memory(void* memory) override {
    if (!exports) fail(ErrorCode::System, "no handles here");
    return SoftwareDevice::export_memory(memory);
  }
  void* import_memory(const std::string& ticket) override {
    if (!imports) fail(ErrorCode::System, "out of reach");
    ++mapped;
    return SoftwareDevice::import_memory(ticket);
  }
  void release_imported(void* memory) override {
    --mapped;
    SoftwareDevice::release_imported(memory);
  }
  std::atomic<int> allocations{0}, releases{0}, synchronizations{0}, mapped{0};
  std::atomic<std::size_t> most{~std::size_t{0}};
  std::atomic<bool> broken{false}, exports{true}, imports{true}, queues{true};
  std::function<void()> meanwhile;
};

}  // namespace mpi_gdr
