// A schedule of messages on the memory of a device with streams.
//
// Each lane is split: Copy and Reduce are the device program, submitted as a whole by launch(); Send and Recv
// are the host program, carried by advance(). Counters in flags join them: a round of one side starts when
// all earlier rounds of the lane are done on both sides. docs/device.md says why this cannot deadlock.
//
// Threads: device_program.hpp; they share flags and constant data. advance() and abandon() do not call the
// device. The progress role may complete the operation and drop its reference before launch() has returned:
// the issuing thread keeps one until then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "execution/device/device_program.hpp"
#include "execution/round_messages.hpp"

namespace mpi_gdr {

class StreamExecution : public DeviceProgram {
 public:
  // May synchronise the device (StreamFlagPool::acquire): construct before posting to the engine.
  StreamExecution(SchedulePtr schedule, const Binding& binding, Transport& transport,
                  std::shared_ptr<StreamFlagPool> flags);

  std::vector<int> pending_peers() const override;
  void abandon() noexcept override;

 private:
  // The sides that have work in a round. Copies of a slice onto itself are no work.
  struct Sides {
    bool host = false, device = false;
  };
  // The position of advance() in a lane.
  struct Cursor {
    std::uint32_t round = 0;  // index in the lane
    std::uint32_t host_done = 0, device_before = 0;
    bool posted = false;
    RoundMessages messages;
  };

  void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) override;
  bool carry() override;
  void release_waits() noexcept override;
  Sides sides_of(const Round& round);
  void submit_lane(int lane, DeviceQueue& queue);
  void advance_lane(int lane);

  // Constant after construction.
  const SchedulePtr schedule_;
  Transport& transport_;
  std::vector<Sides> sides_;               // per round of the schedule
  std::vector<std::uint64_t> host_total_;  // per lane

  // Issuing thread.
  std::vector<const void*> sources_;

  // Progress role.
  std::vector<Cursor> cursors_;
  bool started_ = false;
};

}  // namespace mpi_gdr
