// The calls that only the driver has: waiting for and writing a flag in a stream, and which context
// a thread uses. The driver is found at run time (libcuda.so.1), because machines without it load this
// library, too. HIP has all of this in its runtime.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/gpu_api.hpp"
#include "device/device.hpp"

struct CUctx_st;

namespace mpi_gdr::gpu {

// Whether the driver is there; if not, `why` says so. Does not throw.
bool driver_present(std::string& why);
// As nvidia-smi shows it: "13.0". The driver must be present.
std::string driver_version();

// A device as the driver sees it, with the context that the runtime has for it. That is made if need be, and
// lives as long as the process. Throws System.
class DriverDevice {
 public:
  explicit DriverDevice(int index);

  // Streams can wait for a flag and write one; where not, kernels have to do it.
  bool stream_flags() const { return stream_flags_; }
  // Later work of the stream waits until the flag has reached `at_least`, cyclically: the flag may be up to
  // 2^63 - 1 ahead.
  void wait_flag(Stream stream, const Flag* flag, std::uint64_t at_least) const;
  // After all earlier work of the stream, whose writes everybody sees before this one.
  void write_flag(Stream stream, Flag* flag, std::uint64_t value) const;

  // A wait flushes such writes, or the device sees them in order by itself.
  bool orders_remote_writes() const { return orders_remote_writes_; }
  // The device runs one process at a time: there is no MPS. False where the driver does not say.
  bool takes_turns() const { return takes_turns_; }
  // The calling thread keeps the context.
  void enter_thread() const;

  CUctx_st* context() const { return context_; }
  int index() const { return index_; }

 private:
  int index_;
  CUctx_st* context_ = nullptr;
  bool stream_flags_ = false, orders_remote_writes_ = false, takes_turns_ = false;
  unsigned wait_flags_ = 0;
};

// Makes the device the calling thread's for a while; nothing to do where it is already. The context is what
// is kept and given back, not the number of the runtime's device: a thread that had none is left without, and
// no context comes up on device 0 because a call asked for its number.
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
