// Submits a schedule of one lane, on memory that the devices of a node share, to one queue.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.hpp"
#include "execution/local_step.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpi_gdr {

// One use of a slot, with its flags' values.
struct SlotUse {
  const ipc::DeviceNode* node;  // null: the schedule touches no other rank
  int slot;
  std::uint64_t generation;  // from 1; for replays 0: the device adds their count
  Replays replays{};

  std::uint64_t stamp(std::uint64_t number) const { return generation << 32 | number; }
  // Waits for the end of the slot's earlier use on all ranks.
  void begin(DeviceQueue& queue) const {
    if (generation == 1) return;
    const std::uint64_t before = (generation - 1) << 32;
    node->each_peer([&](int r) { queue.wait_flag(&node->ended(node->rank(), slot, r), before, replays); });
  }
  void end(DeviceQueue& queue) const {
    node->each_peer([&](int r) { queue.write_flag(&node->ended(r, slot, node->rank()), stamp(0), replays); });
  }
  // signal() is this rank's n-th Signal, wait() the Wait for the peer's n-th; n counts from 1.
  void signal(DeviceQueue& queue, std::uint64_t n) const {
    node->each_peer(
        [&](int r) { queue.write_flag(&node->notices(r, slot, node->rank()), stamp(n), replays); });
  }
  void wait(DeviceQueue& queue, int peer, std::uint64_t n) const {
    queue.wait_flag(&node->notices(node->rank(), slot, peer), stamp(n), replays);
  }
  // The slice's address in this rank's memory, or in any rank's Staging of the slot.
  void* address(const Slice& slice, const Binding& binding) const {
    const bool own = slice.owner < 0 || (node && slice.owner == node->rank());
    if (slice.buffer == Buffer::Staging)
      return node->staging(own ? node->rank() : slice.owner, slot) + slice.offset * item_size(binding.dtype);
    MPI_GDR_CHECK(own);
    return const_cast<std::byte*>(source_address(slice, binding));
  }
};

// Submits, in each round, the Signals, which announce the end of earlier rounds, then calls `local(step)` for
// each Copy and Reduce, then submits the Waits and calls `waited()` after each.
template <typename Local, typename Waited>
void submit_rounds(const Schedule& schedule, const SlotUse& use, DeviceQueue& queue, const Local& local,
                   const Waited& waited) {
  std::vector<std::uint32_t> consumed(use.node ? static_cast<std::size_t>(use.node->size()) : 0);
  std::uint32_t notices = 0;
  for (const Round& round : schedule.rounds) {
    const auto steps = schedule.steps_of(round);
    for (const Step& step : steps)
      if (step.kind == StepKind::Signal) use.signal(queue, ++notices);
    for (const Step& step : steps)
      if (step.kind == StepKind::Copy || step.kind == StepKind::Reduce) local(step);
    for (const Step& step : steps)
      if (step.kind == StepKind::Wait) {
        use.wait(queue, step.peer, ++consumed[static_cast<std::size_t>(step.peer)]);
        waited();
      }
  }
}

}  // namespace mpi_gdr
