// A schedule on memory that the devices of a node share: Signal, Wait, Copy and Reduce, all by the device.
// The host only checks for its end and for failures. docs/device.md says why it cannot deadlock.
//
// With mirrors (schedule/schedule.hpp) each device publishes the location of its rank's buffers, if these are
// group memory, and reads that of the others behind a Wait. Other buffers go through Staging.
//
// Threads: device_program.hpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "device/resolved.hpp"
#include "execution/device/device_program.hpp"
#include "execution/device/peer_rounds.hpp"

namespace mpi_gdr {

// A hash of words that are equal on all ranks.
std::uint32_t call_digest(std::initializer_list<std::uint64_t> words);

class PeerExecution : public DeviceProgram {
 public:
  // `use`: earlier uses of the node's slots; `call`: identifies the call; both equal on all ranks. The counts
  // of an all_to_all, in `binding`, are compared in pairs. The schedule has one lane and touches no other
  // rank's Input or Output.
  PeerExecution(SchedulePtr schedule, const Binding& binding, std::shared_ptr<const ipc::DeviceNode> node,
                std::uint64_t use, std::uint32_t call, std::shared_ptr<StreamFlagPool> flags);

  // Ranks that have not issued the operation; if all have, those whose device has not ended it.
  std::vector<int> pending_peers() const override;
  void abandon() noexcept override { release_device(); }

 private:
  void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) override;
  bool carry() override;
  void release_waits() noexcept override;
  // The word that identifies this call, for the rank that receives sent[peer] and sends received[peer].
  std::uint64_t called(int peer, const std::vector<std::uint64_t>& sent,
                       const std::vector<std::uint64_t>& received) const;
  void compare_calls();
  void look_for_failures(bool ended) const;
  void submit(const Step& step, DeviceQueue& queue);
  // False if no address of the step is resolved by the device.
  bool submit_resolved(const Step& step, ReduceArgs args, DeviceQueue& queue);
  // The word that this rank publishes for a buffer; 0: none.
  std::uint64_t shown(const void* memory, Buffer buffer, std::uint64_t use) const;
  void resolve_addresses(DeviceQueue& queue) const;

  const std::shared_ptr<const ipc::DeviceNode> node_;
  const std::uint64_t use_;
  const SlotUse slot_;
  const std::uint32_t call_;
  bool mirrors_;  // some rank may publish a buffer
  std::uint64_t shown_input_ = 0, shown_output_ = 0;

  std::vector<const void*> sources_;      // issuing thread
  std::vector<ResolvedSource> resolved_;  // issuing thread
  bool looked_ = false;                   // issuing thread: resolve_addresses() is behind all Waits so far
  std::vector<bool> compared_;            // progress role: ranks whose call is the same
};

}  // namespace mpi_gdr
