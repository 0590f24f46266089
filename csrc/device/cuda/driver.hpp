// The calls that only the driver has: waiting for and writing a word of memory in a stream, and which context
// a thread uses. The driver is found at run time (libcuda.so.1), because machines without it load this
// library, too. HIP has all of this in its runtime.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/gpu_api.hpp"

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

  // Streams can wait for a word and write one; where not, kernels have to do it.
  bool stream_words() const { return stream_words_; }
  // Later work of the stream waits until the word has reached `at_least`, cyclically: the word may be up to
  // 2^31 - 1 ahead. `word`: an address of the device.
  void wait_word(Stream stream, const std::uint32_t* word, std::uint32_t at_least) const;
  // After all earlier work of the stream, whose writes everybody sees before this one.
  void write_word(Stream stream, std::uint32_t* word, std::uint32_t value) const;
  // Words of 64 bits are compared as numbers as long as they stay below 2^63.
  void wait_word(Stream stream, const std::uint64_t* word, std::uint64_t at_least) const;
  void write_word(Stream stream, std::uint64_t* word, std::uint64_t value) const;

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
  bool stream_words_ = false, orders_remote_writes_ = false, takes_turns_ = false;
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
