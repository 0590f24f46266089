#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

#include "cudart/host_work.hpp"
#include "runtime.hpp"

namespace simgpu {

namespace {

// The error of the first kernel that failed. It is permanent.
struct Failure {
  std::mutex mutex;
  std::string text;
};

Failure& failure() {
  static Failure* const known = new Failure;
  return *known;
}

std::function<void()> guarded(std::function<void()> work) {
  return [work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard lock(failure().mutex);
      if (failure().text.empty()) failure().text = error.what();
    }
  };
}

void throw_failure() {
  const std::lock_guard lock(failure().mutex);
  TORCH_CHECK(failure().text.empty(), "simgpu: a kernel has failed: ", failure().text);
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  TORCH_CHECK(false, "simgpu: ", call, ": ", cudaGetErrorString(status));
}

bool is_over(cudaError_t status, const char* call) {
  if (status != cudaErrorNotReady) check(status, call);
  static_cast<void>(cudaGetLastError());
  return status == cudaSuccess;
}

DeviceScope::DeviceScope(c10::DeviceIndex device) {
  check(cudaGetDevice(&before_), "cudaGetDevice");
  if (device != before_) check(cudaSetDevice(device), "cudaSetDevice");
}

DeviceScope::~DeviceScope() { static_cast<void>(cudaSetDevice(before_)); }

BesideCapture::BesideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
BesideCapture::~BesideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

bool Mark::reached() const {
  const BesideCapture scope;
  return !event_ || is_over(cudaEventQuery(event_.get()), "cudaEventQuery");
}

void Queue::enqueue(std::function<void()> work) const {
  const DeviceScope scope(device_);
  check(fakecuda::launch(native_, guarded(std::move(work))), "launch");
}

void Queue::slip_in(std::function<void()> work) const {
  const DeviceScope scope(device_);
  fakecuda::slip_in(native_, std::move(work));
}

void Queue::copy(void* dst, const void* src, std::size_t bytes) const {
  const DeviceScope scope(device_);
  check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native_), "cudaMemcpyAsync");
}

Mark Queue::mark() const {
  const DeviceScope scope(device_);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  Mark mark;
  mark.event_ = {event, [](cudaEvent_t made) { static_cast<void>(cudaEventDestroy(made)); }};
  check(cudaEventRecord(event, native_), "cudaEventRecord");
  return mark;
}

void Queue::wait(const Mark& mark) const {
  const DeviceScope scope(device_);
  if (mark.event_) check(cudaStreamWaitEvent(native_, mark.event_.get(), 0), "cudaStreamWaitEvent");
}

void Queue::synchronize() const {
  expect_not_captured("synchronize");
  const DeviceScope scope(device_);
  check(cudaStreamSynchronize(native_), "cudaStreamSynchronize");
  throw_failure();
}

bool Queue::idle() const {
  expect_not_captured("query");
  const DeviceScope scope(device_);
  return is_over(cudaStreamQuery(native_), "cudaStreamQuery");
}

bool Queue::capturing() const {
  const DeviceScope scope(device_);
  auto status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native_, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void Queue::expect_not_captured(const char* call) const {
  TORCH_CHECK(!capturing(), call, " of a stream that is being captured");
}

void Gpu::synchronize() {
  const DeviceScope scope(index_);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  throw_failure();
}

}  // namespace simgpu
