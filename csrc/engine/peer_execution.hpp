// A schedule on memory that the devices of a node share: Notify, Await, Copy and Reduce, all of it a device
// program. The host does nothing but look whether it is over.
//
// Why it cannot deadlock: as in docs/device.md. What one device waits for is written by another's queue at a
// place with a smaller key, and slots are used again in the order in which operations are launched.
//
// Threads: constructor and launch() on the issuing thread; advance(), pending_peers() and abandon() by the
// holder of the progress role; release_device() by anyone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device_program.hpp"
#include "engine/stream_flags.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpigdr {

class PeerExecution : public DeviceProgram {
 public:
  // `use`: of the node's slots so far, `call`: what tells this call from others; both equal on all ranks. The
  // schedule touches no other rank's Input or Output.
  PeerExecution(SchedulePtr schedule, const Binding& binding, std::shared_ptr<const ipc::DeviceNode> node,
                std::uint64_t use, std::uint32_t call, std::shared_ptr<StreamFlagPool> flags);
  ~PeerExecution() override;

  void launch(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller,
              const std::function<void()>& conclude) override;
  bool advance() override;
  // Who has not issued the operation; if all have, whose device has not ended it.
  std::vector<int> pending_peers() const override;
  void abandon() noexcept override { release_device(); }
  bool release_device() noexcept override;

 private:
  void compare_calls();
  void submit_lane(int lane, DeviceQueue& queue);
  void submit(const Step& step, DeviceQueue& queue);
  void* address(const Slice& slice) const;

  const SchedulePtr schedule_;
  const Binding binding_;
  const std::shared_ptr<const ipc::DeviceNode> node_;
  const int slot_;
  const std::uint64_t generation_;
  const std::uint32_t call_;
  const std::shared_ptr<StreamFlagPool> pool_;
  const StreamFlags flags_;

  std::vector<const void*> sources_;  // issuing thread
  std::atomic<bool> launched_{false};
  bool done_ = false;           // progress role
  std::vector<bool> compared_;  // progress role: ranks whose call is known to be the same
};

}  // namespace mpigdr
