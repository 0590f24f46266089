// A schedule on memory that the devices of a node share: Signal, Wait, Copy and Reduce, all by the device.
// The host only checks for its end and for failures. docs/device.md says why it cannot deadlock.
//
// With mirrors (schedule/schedule.hpp) each device publishes where its rank's buffers are in group memory,
// and reads the other ranks' locations after a Wait. Buffers in other memory go through Staging.
//
// Threads: device_program.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/resolved.hpp"
#include "execution/device/node_program.hpp"
#include "execution/device/peer_rounds.hpp"

namespace mpi_gdr {

class PeerExecution : public NodeProgram {
 public:
  // As NodeProgram. The schedule has one lane and touches no other rank's Input or Output.
  PeerExecution(SchedulePtr schedule, const Binding& binding, std::shared_ptr<const ipc::DeviceNode> node,
                std::uint64_t use, std::uint32_t call, std::shared_ptr<StreamFlagPool> flags);

 private:
  void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) override;
  void release_waits() noexcept override;
  void submit(const Step& step, DeviceQueue& queue);
  // False if no address of the step is resolved by the device.
  bool submit_resolved(const Step& step, ReduceArgs args, DeviceQueue& queue);
  // The word that this rank publishes for a buffer; 0: none.
  std::uint64_t shown(const void* memory, Buffer buffer, std::uint64_t use) const;
  void resolve_addresses(DeviceQueue& queue) const;

  const SchedulePtr schedule_;
  const std::shared_ptr<const ipc::DeviceNode> memory_;
  const SlotUse slot_use_;
  bool mirrors_;  // some rank may publish a buffer
  std::uint64_t shown_input_ = 0, shown_output_ = 0;

  std::vector<const void*> sources_;      // issuing thread
  std::vector<ResolvedSource> resolved_;  // issuing thread
  bool looked_ = false;                   // issuing thread: resolved since the last Wait
};

}  // namespace mpi_gdr
