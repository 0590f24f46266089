// The streams on which a group works on one device, and what serves that device: a library of ours
// (device/library.hpp) that joins its streams to the progress thread. Without one: see tensor_call.hpp.
//
// Threads: immutable after construction, but for pass_addresses(); any thread may give work to streams.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/library.hpp"
#include "execution/device/stream_flags.hpp"

namespace mpi_gdr::torch_binding {

// What serves devices of this type; null: nothing. Loads it at the first call.
DeviceLibrary* device_library(c10::DeviceType type);
// Whether it has any here: a driver may be too old for it, though not for torch.
bool serves_devices(c10::DeviceType type);
// A tensor uses the host fallback. Logs the reason, once a process: a warning unless MPI_GDR_CUDA=off.
void warn_of_fallback(c10::DeviceType type, bool sparse);
// Why CUDA_DEVICE_MAX_CONNECTIONS is too small for our streams beside one of the program; "": it is not.
std::string shortage_of_queues();
// For tests: `library` serves this type from now on.
void use_device_library(c10::DeviceType type, DeviceLibrary* library);

class DeviceStreams {
 public:
  static constexpr int kBesideLanes = 3;  // streams: departures(), futures(), captured()
  // `lanes`: operations are spread over so many streams.
  DeviceStreams(c10::Device where, DeviceLibrary& library, int lanes);
  ~DeviceStreams();
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  c10::Device where() const { return where_; }
  Device& device() const { return device_; }
  // Messages go by way of host memory: until it is known that the transport takes the device's addresses, and
  // that they move whatever the device does.
  bool through_host() const { return through_host_.load(std::memory_order_acquire); }
  void pass_addresses();  // from now on, as they are
  // What a network card writes there can be waited for. Warns if not.
  bool sees_messages_in_order() const;
  const std::shared_ptr<StreamFlagPool>& flags() const { return flags_; }
  c10::Stream current() const;  // the calling thread's
  // What it is for our own programs.
  std::unique_ptr<DeviceQueue> queue(const c10::Stream& stream) const;
  // Work given to the stream is being recorded, not run.
  bool capturing(const c10::Stream& stream) const;
  // Collectives: lanes, of which the first also carries what follows an operation.
  std::span<DeviceQueue* const> queues() const { return queues_; }
  c10::Stream results() const { return wrap(*queues_.front()); }
  // Copies of what messages send; waits for nothing but its input.
  c10::Stream departures() const { return wrap(departures_); }
  // Where Futures learn of the events they stand for; carries no work.
  c10::Stream futures() const { return wrap(futures_); }
  // What is captured into graphs, of all groups on this device (execution/device/captured_program.hpp).
  c10::Stream captured() const { return wrap(captured_); }
  // As bytes. Host memory is pinned.
  at::Tensor device_memory(std::size_t bytes) const;
  at::Tensor host_memory(std::size_t bytes) const;

 private:
  c10::Stream wrap(DeviceQueue& queue) const;

  const c10::Device where_;
  Device& device_;
  const std::shared_ptr<StreamFlagPool> flags_;
  std::atomic<bool> through_host_{true};
  // None of those that torch deals to everybody: what stands there may wait for a message.
  DeviceQueue &departures_, &futures_, &captured_;
  std::vector<DeviceQueue*> queues_;
};

// Of one group, by device. Thread-safe.
class Devices {
 public:
  // `group`: its name, for the log. `served`: on all members, who must all do alike.
  Devices(std::string group, bool served, bool gpu_aware)
      : group_(std::move(group)), served_(served), gpu_aware_(gpu_aware) {}
  // Null: nothing serves it. The first call for a device may wait for it; it throws during a capture.
  std::shared_ptr<DeviceStreams> find(c10::Device where);
  bool served() const { return served_; }
  // On all members the transport takes addresses of a device, as it says.
  bool gpu_aware() const { return gpu_aware_; }
  // The calling thread's current stream of one of them is being captured.
  bool capturing();

 private:
  const std::string group_;
  const bool served_, gpu_aware_;
  std::mutex mutex_;
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, std::shared_ptr<DeviceStreams>> made_;
};

}  // namespace mpi_gdr::torch_binding
