// A schedule on memory that the devices of a node share: Signal, Wait, Copy and Reduce, all of it a device
// program. The host does nothing but look whether it is over.
//
// Of a schedule with mirrors (schedule/schedule.hpp) each device shows the others where its rank's buffers
// are, if these are group memory, and takes those of the others from what they show when it has met them.
// Ranks that show nothing go through Staging.
// It cannot deadlock: docs/device.md.
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

// Of what ranks agree on, in short.
std::uint32_t call_digest(std::initializer_list<std::uint64_t> words);

class PeerExecution : public DeviceProgram {
 public:
  // `use`: of the node's slots so far, `call`: what tells this call from others; both equal on all its ranks.
  // What an all_to_all exchanges stands in `binding`, and is compared in pairs.
  // The schedule touches no other rank's Input or Output, and has one lane.
  PeerExecution(SchedulePtr schedule, const Binding& binding, std::shared_ptr<const ipc::DeviceNode> node,
                std::uint64_t use, std::uint32_t call, std::shared_ptr<StreamFlagPool> flags);

  // Who has not issued the operation; if all have, whose device has not ended it.
  std::vector<int> pending_peers() const override;
  void abandon() noexcept override { release_device(); }

 private:
  void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) override;
  bool carry() override;
  void release_waits() noexcept override;
  // What tells of this call to the rank that gets sent[peer] and gives received[peer].
  std::uint64_t called(int peer, const std::vector<std::uint64_t>& sent,
                       const std::vector<std::uint64_t>& received) const;
  void compare_calls();
  void look_for_failures(bool ended) const;
  void submit(const Step& step, DeviceQueue& queue);
  // If it is a step whose addresses the device takes from what the others have shown; else false.
  bool submit_resolved(const Step& step, ReduceArgs args, DeviceQueue& queue);
  // What this rank shows of a buffer; 0: nothing.
  std::uint64_t shown(const void* memory, Buffer buffer, std::uint64_t use) const;
  void resolve_addresses(DeviceQueue& queue) const;

  const std::shared_ptr<const ipc::DeviceNode> node_;
  const std::uint64_t use_;
  const SlotUse slot_;
  const std::uint32_t call_;
  bool mirrors_;  // some rank may show something
  std::uint64_t shown_input_ = 0, shown_output_ = 0;

  std::vector<const void*> sources_;      // issuing thread
  std::vector<ResolvedSource> resolved_;  // issuing thread
  bool looked_ = false;                   // issuing thread: resolve_addresses() is behind all Waits so far
  std::vector<bool> compared_;            // progress role: ranks whose call is known to be the same
};

}  // namespace mpi_gdr
