// The simulated accelerators of this process and their streams, as a device runtime would offer them: what
// torch's device guard, allocators and kernels are built on.
//
// Thread-safe. Nothing is ever destroyed: tensors may outlive every static object.
#pragma once

#include <c10/core/Stream.h>

#include <array>
#include <memory>
#include <mutex>

#include "device/sim/sim_device.hpp"
#include "device/sim/sim_queue.hpp"

namespace simgpu {

inline constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
inline constexpr int kMostDevices = 64;
// As many as torch keeps for CUDA. Stream 0 is the default one, 1..kPool are dealt round robin.
inline constexpr int kPool = 32;

// From the environment: tests/simgpu/__init__.py tells of it.
struct Settings {
  int devices;
  bool poison;
  bool malloc_waits;
  bool deferred;
  mpigdr::SimOptions device;
};
const Settings& settings();

class Gpu {
 public:
  explicit Gpu(const mpigdr::SimOptions& options);
  mpigdr::SimDevice& device() { return device_; }
  mpigdr::SimQueue& stream(c10::StreamId id);
  c10::StreamId next_stream();

 private:
  mpigdr::SimDevice device_;
  std::mutex mutex_;
  std::array<std::unique_ptr<mpigdr::DeviceQueue>, kPool + 1> streams_;
  c10::StreamId dealt_ = 0;
};

// Started by the first call. Refuses in a process forked after that.
Gpu& gpu(c10::DeviceIndex index);
bool started();
bool in_bad_fork();

// -1: the current one.
c10::DeviceIndex resolve(c10::DeviceIndex index);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index = -1);
void set_current_stream(c10::Stream stream);
mpigdr::SimQueue& queue(c10::Stream stream);
inline mpigdr::SimQueue& current_queue(c10::DeviceIndex index = -1) { return queue(current_stream(index)); }

}  // namespace simgpu
