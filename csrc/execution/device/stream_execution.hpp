// A schedule on the memory of a device with streams, which the transport can reach.
//
// The schedule is split per lane: Copy and Reduce form the device program, submitted as a whole by launch();
// Send and Recv form the host program, carried by advance(). Counters in flags join them: a round of one side
// starts when all earlier rounds of the lane are done on both sides. docs/device.md says why this cannot
// deadlock.
//
// Threads: constructor, launch() and end_early() on the issuing thread; advance(), pending_peers()
// and abandon() by the holder of the progress role, from before launch() on; release_device() by anyone.
// Apart from flags they share only constant data. advance() and abandon() touch the transport and flags,
// never the device. Ownership: the progress role may see the operation done, and drop it, before launch() has
// returned: the issuing thread keeps a reference of its own until launch() is through.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "execution/device/device_program.hpp"
#include "execution/device/stream_flags.hpp"
#include "execution/round_messages.hpp"

namespace mpi_gdr {

class StreamExecution : public DeviceProgram {
 public:
  // May synchronise the device (see StreamFlagPool::acquire), so construct before posting to the engine.
  StreamExecution(SchedulePtr schedule, const Binding& binding, Transport& transport,
                  std::shared_ptr<StreamFlagPool> flags);

  void launch(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller,
              const std::function<void()>& conclude = nullptr) override;
  void end_early(Device& device, std::span<DeviceQueue* const> queues) noexcept override {
    flags_.end_early(device, queues);
  }

  // True once the device program is over as well: buffers are free, scratch may be reused.
  bool advance() override;
  std::vector<int> pending_peers() const override;
  // Releases every flag that the device waits for, so that its queues drain; what is in the buffers is
  // undefined.
  void abandon() noexcept override;
  bool release_device() noexcept override;

 private:
  // Which sides a round has, after plain copies of a slice onto itself were dropped.
  struct Sides {
    bool host = false, device = false;
  };
  // Where advance() stands in a lane.
  struct Cursor {
    std::uint32_t round = 0;  // index in the lane
    std::uint32_t host_done = 0, device_before = 0;
    bool posted = false;
    RoundMessages messages;
  };

  Sides sides_of(const Round& round);
  void submit_lane(int lane, DeviceQueue& queue);
  void advance_lane(int lane);

  // Constant after construction.
  const SchedulePtr schedule_;
  const Binding binding_;
  Transport& transport_;
  std::vector<Sides> sides_;               // per round of the schedule
  std::vector<std::uint32_t> host_total_;  // per lane
  ProgramFlags flags_;

  // Issuing thread.
  std::vector<const void*> sources_;

  // Progress role.
  std::vector<Cursor> cursors_;
  bool started_ = false;
  bool done_ = false;
};

}  // namespace mpi_gdr
