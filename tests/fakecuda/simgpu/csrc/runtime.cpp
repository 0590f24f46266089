#include "runtime.hpp"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "cudart/settings.hpp"

namespace simgpu {

namespace {

std::atomic<bool> any_started{false}, bad_fork{false};
thread_local c10::DeviceIndex thread_device = 0;
thread_local std::array<c10::StreamId, kMostDevices> thread_streams{};

}  // namespace

Queue Gpu::stream(c10::StreamId id) {
  if (id == 0) return {nullptr, index_};
  if (id < 0 || id > kPool) return {reinterpret_cast<cudaStream_t>(id), index_};  // a foreign stream
  const DeviceScope scope(index_);
  const std::lock_guard lock(mutex_);
  cudaStream_t& stream = streams_[static_cast<std::size_t>(id)];
  if (!stream) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return {stream, index_};
}

c10::StreamId Gpu::next_stream() {
  std::lock_guard lock(mutex_);
  return 1 + dealt_++ % kPool;
}

Gpu& gpu(c10::DeviceIndex index) {
  TORCH_CHECK(!bad_fork, "simgpu cannot be used in a process that was forked after its first use");
  TORCH_CHECK(index >= 0 && index < device_count(), "simgpu:", static_cast<int>(index), ": there are ",
              static_cast<int>(device_count()), " (FAKECUDA_DEVICES), and at most ", kMostDevices);
  static std::mutex mutex;
  static std::array<std::atomic<Gpu*>, kMostDevices> gpus{};
  if (Gpu* const known = gpus[index]) return *known;
  std::lock_guard lock(mutex);
  if (!gpus[index]) {
    if (!any_started.exchange(true)) pthread_atfork(nullptr, nullptr, [] { bad_fork = true; });
    gpus[index] = new Gpu(index);
  }
  return *gpus[index];
}

bool started() { return any_started; }
bool in_bad_fork() { return bad_fork; }

c10::DeviceIndex device_count() {
  const auto devices = std::min<std::uint64_t>(fakecuda::Settings::get().devices, kMostDevices);
  return bad_fork ? 0 : static_cast<c10::DeviceIndex>(devices);
}

c10::DeviceIndex resolve(c10::DeviceIndex index) { return index < 0 ? thread_device : index; }

c10::DeviceIndex current_device() { return thread_device; }

void set_current_device(c10::DeviceIndex index) {
  if (index == thread_device) return;
  gpu(index);
  check(cudaSetDevice(index), "cudaSetDevice");
  thread_device = index;
}

c10::Stream current_stream(c10::DeviceIndex index) {
  index = resolve(index);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, index), thread_streams[index]);
}

void set_current_stream(c10::Stream stream) { thread_streams[stream.device_index()] = stream.id(); }

Queue queue(c10::Stream stream) { return gpu(stream.device_index()).stream(stream.id()); }

}  // namespace simgpu
