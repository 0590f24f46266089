// The device's part of an operation, submitted as a whole when Group::issue() issues the operation.
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

  // Submits the whole device program behind earlier work of `caller`: once, after the operation was posted to
  // the engine. `conclude` is called before the end is marked: its work on queues[0] sees the results and
  // belongs to the operation. Lanes are spread over `queues`, at least one, of which `caller` may be one;
  // with fewer queues than lanes the lanes overlap less. The number of queues may differ between ranks; all
  // ranks launch the operations of a group in the same order.
  void launch(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller,
              const std::function<void()>& conclude = nullptr);
  // After launch() has thrown, or instead of it where another program of the operation could not be launched:
  // marks the end of what was submitted, for release_device().
  void end_early(Device& device, std::span<DeviceQueue* const> queues) noexcept;
  // True once the device program is over as well: buffers are free.
  bool advance() final;
  // Sets every flag that the device waits for: its queues drain with undefined results. To be repeated until
  // it returns true, when the device no longer accesses the flags.
  bool release_device() noexcept {
    release_waits();
    return flags_.device_done();
  }

 protected:
  // May synchronise the device (StreamFlagPool::acquire).
  DeviceProgram(std::size_t rounds, const Binding& binding, std::shared_ptr<StreamFlagPool> pool);

  // launch() without `conclude` and the end.
  virtual void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) = 0;
  // advance(), not called again once it has returned true.
  virtual bool carry() = 0;
  virtual void release_waits() noexcept = 0;

  const Binding binding_;
  const StreamFlags flags_;  // span: the rounds, and 1

 private:
  const std::shared_ptr<StreamFlagPool> pool_;
  std::atomic<bool> with_device_{false};  // from launch() or end_early() to the end
  bool done_ = false;                     // progress role
};

}  // namespace mpi_gdr
