// The device's part of an operation, as Group::issue() deals with it: submitted as a whole when the operation
// is issued.
//
// Threads: constructor, launch() and end_early() on the issuing thread; advance(), pending_peers() and
// abandon() by the holder of the progress role, from before launch() on; release_device() and the destructor
// by anyone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "execution/device/stream_flags.hpp"
#include "execution/execution.hpp"

namespace mpi_gdr {

class DeviceProgram : public Execution {
 public:
  // The flags go back to the pool, or are leaked where the device may still write to them.
  ~DeviceProgram() override;
  DeviceProgram(const DeviceProgram&) = delete;
  DeviceProgram& operator=(const DeviceProgram&) = delete;

  // Submits the whole device program behind what `caller` holds now, which may be the first of `queues`: call
  // once, after the operation was posted to the engine. `conclude` is called before its end is marked: what
  // it submits to queues[0] sees the results and belongs to the operation. Lanes are spread over `queues`, at
  // least one; `caller` may be one of them; with fewer queues than lanes the lanes share, which
  // costs overlap but is safe. The lists may differ between ranks; all ranks must launch the operations of a
  // group in the same order.
  void launch(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller,
              const std::function<void()>& conclude = nullptr);
  // After launch() has thrown, or instead of it where another program of the operation could not be launched:
  // marks the end of what was submitted, for release_device().
  void end_early(Device& device, std::span<DeviceQueue* const> queues) noexcept;
  // True once the device program is over as well: buffers are free.
  bool advance() final;
  // Sets every flag that the device waits for: its queues drain, and what is in the buffers is undefined.
  // True once the device is through: until then it may have to be done again. Any number of times.
  bool release_device() noexcept {
    release_waits();
    return flags_.through();
  }

 protected:
  // May synchronise the device (StreamFlagPool::acquire).
  DeviceProgram(SchedulePtr schedule, const Binding& binding, std::shared_ptr<StreamFlagPool> pool);

  // launch() but for the end.
  virtual void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) = 0;
  // advance() until it is true.
  virtual bool carry() = 0;
  virtual void release_waits() noexcept = 0;

  const SchedulePtr schedule_;
  const Binding binding_;
  const StreamFlags flags_;  // with as many values as the schedule has rounds, and one

 private:
  const std::shared_ptr<StreamFlagPool> pool_;
  std::atomic<bool> with_device_{false};  // from launch() or end_early() to the end
  bool done_ = false;                     // progress role
};

}  // namespace mpi_gdr
