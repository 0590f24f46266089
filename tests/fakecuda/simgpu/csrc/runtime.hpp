// The process's accelerators and streams, for torch's device guard, allocators and kernels. They are the
// devices and streams of the software CUDA (cudart/).
//
// Thread-safe. Never destroyed: tensors may outlive every static object.
#pragma once

#include <c10/core/Stream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

namespace simgpu {

inline constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
inline constexpr int kMostDevices = 64;
// As many as torch keeps for CUDA. Stream 0 is the default one, CUDA's legacy stream; 1..kPool are assigned
// round robin; larger numbers are handles of foreign streams.
inline constexpr int kPool = 32;

// Throws c10::Error if `status` is an error.
void check(cudaError_t status, const char* call);
// Returns false if the work is not done. Throws c10::Error on another error.
bool is_over(cudaError_t status, const char* call);

// Sets CUDA's current device for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;

 private:
  int before_;
};

// Allows allocation and queries of uncaptured events while the calling thread captures, as torch does.
class BesideCapture {
 public:
  BesideCapture();
  ~BesideCapture();
  BesideCapture(const BesideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A position in a stream that is not captured: an event recorded once. A default Mark is reached.
class Mark {
 public:
  Mark() = default;
  bool reached() const;

 private:
  friend class Queue;
  std::shared_ptr<CUevent_st> event_;
};

// A stream; copies refer to the same one. Calls that a capture forbids throw. An exception of a kernel is
// thrown by every later synchronize().
class Queue {
 public:
  Queue(cudaStream_t native, c10::DeviceIndex device) : native_(native), device_(device) {}
  cudaStream_t native() const { return native_; }
  void enqueue(std::function<void()> work) const;
  // Not a CUDA call: does not block while a CUDA call waits for the whole device.
  void slip_in(std::function<void()> work) const;
  void copy(void* dst, const void* src, std::size_t bytes) const;
  Mark mark() const;
  void wait(const Mark& mark) const;
  void synchronize() const;
  bool idle() const;
  bool capturing() const;

 private:
  void expect_not_captured(const char* call) const;

  cudaStream_t native_;
  c10::DeviceIndex device_;
};

class Gpu {
 public:
  explicit Gpu(c10::DeviceIndex index) : index_(index) {}
  Queue stream(c10::StreamId id);
  c10::StreamId next_stream();
  // Waits for the work submitted before the call.
  void synchronize();

 private:
  const c10::DeviceIndex index_;
  std::mutex mutex_;
  std::array<cudaStream_t, kPool + 1> streams_{};  // null: not created yet
  c10::StreamId dealt_ = 0;
};

// The first call starts simgpu. Throws in a process that was forked after the start.
Gpu& gpu(c10::DeviceIndex index);
bool started();
bool in_bad_fork();
// FAKECUDA_DEVICES; 0 in a bad fork.
c10::DeviceIndex device_count();

// -1: the current one.
c10::DeviceIndex resolve(c10::DeviceIndex index);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index = -1);
void set_current_stream(c10::Stream stream);
Queue queue(c10::Stream stream);
inline Queue current_queue(c10::DeviceIndex index = -1) { return queue(current_stream(index)); }

}  // namespace simgpu
