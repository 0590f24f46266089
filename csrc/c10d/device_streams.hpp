// The streams of a group on one device, served by a device library (device/library.hpp); without one:
// tensor_call.hpp.
//
// Threads: immutable, except pass_addresses(); any thread may submit work.
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

// Null: no library serves this type. Loaded at the first call.
DeviceLibrary* device_library(c10::DeviceType type);
// False, too, if our library finds no such device: the driver may be too old for it, though not for torch.
// Without an index: whether it serves some device of the type.
bool serves_device(c10::Device where);
// Logs once a process why a tensor uses the host fallback: a warning unless MPI_GDR_CUDA=off.
void warn_of_fallback(c10::DeviceType type, bool sparse);
// Why CUDA_DEVICE_MAX_CONNECTIONS is too small for our streams and one of the program; "": it is not.
std::string shortage_of_queues();

class DeviceStreams {
 public:
  // `lanes`: equal in all calls. All groups share captured(); those beyond the fourth share all streams with
  // an earlier one.
  DeviceStreams(c10::Device where, DeviceLibrary& library, int lanes);
  // Later groups get no stream that is blocked now. Does not wait.
  static void note_failed_group() noexcept;
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  c10::Device where() const { return where_; }
  Device& device() const { return device_; }
  // Messages go through host memory until a MessageTrial of device memory has succeeded on all ranks.
  bool through_host() const { return through_host_.load(std::memory_order_acquire); }
  void pass_addresses();                // from now on
  bool sees_messages_in_order() const;  // a network card's writes can be waited for; warns if not
  const std::shared_ptr<StreamFlagPool>& flags() const { return flags_; }
  c10::Stream current() const;                                          // of the calling thread
  std::unique_ptr<DeviceQueue> queue(const c10::Stream& stream) const;  // for our programs
  bool capturing(const c10::Stream& stream) const;                      // work is recorded into a graph
  // Lanes for collectives; epilogues run on the first.
  std::span<DeviceQueue* const> queues() const { return queues_; }
  c10::Stream results() const { return wrap(*queues_.front()); }
  // Copies of outgoing messages; waits for their input only.
  c10::Stream departures() const { return wrap(departures_); }
  c10::Stream futures() const { return wrap(futures_); }  // events of Futures, copies of received messages
  // Captured work of all groups (execution/device/captured_program.hpp).
  c10::Stream captured() const { return wrap(captured_); }
  // `bytes` long; host memory is pinned.
  at::Tensor device_memory(std::size_t bytes) const;
  at::Tensor host_memory(std::size_t bytes) const;

 private:
  c10::Stream wrap(DeviceQueue& queue) const;

  const c10::Device where_;
  Device& device_;
  const std::shared_ptr<StreamFlagPool> flags_;
  std::atomic<bool> through_host_{true};
  // Not from torch's pool, where other work shares a stream: these may wait for a message.
  DeviceQueue &departures_, &futures_, &captured_;
  std::vector<DeviceQueue*> queues_;
};

class Devices {  // of one group, by device; thread-safe
 public:
  // `group`: for the log. `served`: by all members.
  Devices(std::string group, bool served, bool gpu_aware)
      : group_(std::move(group)), served_(served), gpu_aware_(gpu_aware) {}
  // Null: not served. The first call may wait for the device, and throws during a capture.
  std::shared_ptr<DeviceStreams> find(c10::Device where);
  bool served() const { return served_; }
  // On all members the transport takes device addresses: it reports this, or MPI_GDR_GPU_AWARE=on.
  bool gpu_aware() const { return gpu_aware_; }
  bool capturing();  // whether a current stream is captured

 private:
  const std::string group_;
  const bool served_, gpu_aware_;
  std::mutex mutex_;
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, std::shared_ptr<DeviceStreams>> made_;
};

}  // namespace mpi_gdr::torch_binding
