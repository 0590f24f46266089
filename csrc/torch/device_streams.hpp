// The streams on which a group works on one device, and what serves that device: a library of ours
// (device/library.hpp) that joins its streams to the progress thread. Devices without one take the floor in
// job.hpp.
//
// Threads: immutable after construction; streams may be given work by any thread that issues operations.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/library.hpp"
#include "engine/stream_flags.hpp"

namespace mpigdr::torch_binding {

// What serves devices of this type; null: nothing. Loads it at the first call.
DeviceLibrary* device_library(c10::DeviceType type);
// For tests: `library` serves this type from now on.
void use_device_library(c10::DeviceType type, DeviceLibrary* library);

class DeviceStreams {
 public:
  // `lanes`: operations are spread over so many streams. `gpu_aware`: the transport takes the device's
  // addresses; that is tried first.
  DeviceStreams(c10::Device where, DeviceLibrary& library, int lanes, bool gpu_aware);

  Device& device() const { return device_; }
  // Messages go by way of host memory: the transport does not take the device's addresses, or it waits for
  // streams when it does.
  bool through_host() const { return through_host_; }
  const std::shared_ptr<StreamFlagPool>& flags() const { return flags_; }
  c10::Stream current() const;  // the calling thread's
  // What it is for our own programs.
  std::unique_ptr<DeviceQueue> queue(const c10::Stream& stream) const;
  // Work given to the stream is being recorded, not run.
  bool capturing(const c10::Stream& stream) const;
  // Collectives: lanes, of which the first also carries what follows an operation.
  std::span<DeviceQueue* const> queues() const { return queues_; }
  c10::Stream results() const { return streams_.front(); }
  // Copies of what messages send; waits for nothing but its input.
  c10::Stream departures() const { return departures_; }
  // Where Futures are told of what is behind them; carries no work.
  c10::Stream futures() const { return futures_; }
  // What is captured into graphs, of all groups on this device (engine/captured_program.hpp).
  const c10::Stream& captured() const { return captured_; }
  // As bytes. Host memory is pinned.
  at::Tensor device_memory(std::size_t bytes) const;
  at::Tensor host_memory(std::size_t bytes) const;

 private:
  bool takes_messages() const;
  bool moves_beside_a_wait(c10::Device where) const;

  const c10::Device where_;
  Device& device_;
  const std::shared_ptr<StreamFlagPool> flags_;
  bool through_host_;
  std::vector<c10::Stream> streams_;  // of the lanes
  // Of the other kind of priority: not among those that the lanes of any group are dealt from.
  const c10::Stream departures_, futures_;
  const c10::Stream captured_;
  std::vector<std::unique_ptr<DeviceQueue>> owned_;
  std::vector<DeviceQueue*> queues_;
};

// Of one group, by device. Thread-safe.
class Devices {
 public:
  // `group`: its name, for the log. `served`: on all members, who must all do alike.
  Devices(std::string group, bool served, bool gpu_aware)
      : group_(std::move(group)), served_(served), gpu_aware_(gpu_aware) {}
  // Null: nothing serves it. The first call for a device may wait for it, and is refused while the current
  // stream is being captured.
  std::shared_ptr<DeviceStreams> find(c10::Device where);
  bool served() const { return served_; }
  // The calling thread's current stream of one of them is being captured.
  bool capturing();

 private:
  const std::string group_;
  const bool served_, gpu_aware_;
  std::mutex mutex_;
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, std::shared_ptr<DeviceStreams>> made_;
};

}  // namespace mpigdr::torch_binding
