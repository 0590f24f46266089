// Calls that CUDA has in the driver only: streams wait for and write flags, and threads set contexts. The
// driver is loaded at run time (libcuda.so.1), because machines without it load this library, too. HIP has
// these calls in its runtime.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/gpu_api.hpp"
#include "device/device.hpp"

struct CUctx_st;

namespace mpi_gdr::gpu {

// Whether there is a driver; if not, `why` has the reason. Does not throw.
bool driver_present(std::string& why);
// As nvidia-smi shows it: "13.0". The driver must be present.
std::string driver_version();

// A device of the driver with its primary context, which the runtime uses, too, and which lives as long as
// the process. Throws System.
class DriverDevice {
 public:
  explicit DriverDevice(int index);

  // Whether streams can wait for flags and write them; if not, kernels do.
  bool stream_flags() const { return stream_flags_; }
  // Later work of the stream waits until the flag has reached `at_least`, cyclically: the flag may be up to
  // 2^63 - 1 ahead.
  void wait_flag(Stream stream, const Flag* flag, std::uint64_t at_least) const;
  // Executes after all earlier work of the stream, whose writes become visible before the flag's.
  void write_flag(Stream stream, Flag* flag, std::uint64_t value) const;

  // As Device::orders_remote_writes(): a wait flushes remote writes, or the device orders them.
  bool orders_remote_writes() const { return orders_remote_writes_; }
  // The device runs one process at a time, without MPS. False if the query fails.
  bool takes_turns() const { return takes_turns_; }
  // Sets the calling thread's context permanently.
  void enter_thread() const;

  CUctx_st* context() const { return context_; }
  int index() const { return index_; }

 private:
  int index_;
  CUctx_st* context_ = nullptr;
  bool stream_flags_ = false, orders_remote_writes_ = false, takes_turns_ = false;
  unsigned wait_flags_ = 0;
};

// Makes the device current for the calling thread while it lives. It restores the context, not the runtime's
// device number: a thread without a context is left without one, and no context is created on device 0.
class DeviceGuard {
 public:
  explicit DeviceGuard(const DriverDevice& device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  CUctx_st* earlier_ = nullptr;
  bool changed_ = false;
};

}  // namespace mpi_gdr::gpu
