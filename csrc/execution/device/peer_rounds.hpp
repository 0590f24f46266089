// How a schedule on memory that the devices of a node share, of one lane, becomes work of one queue.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.hpp"
#include "execution/local_step.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpi_gdr {

// One use of a slot: how its flags are written and waited for.
struct SlotUse {
  const ipc::DeviceNode* node;  // null: of a schedule that touches no other rank
  int slot;
  std::uint64_t generation;  // from 1; 0: the number of the replay, which the device adds
  Replays replays{};         // of a slot whose uses are replayed

  std::uint64_t stamp(std::uint64_t number) const { return generation << 32 | number; }
  // Waits until all have ended what they had there before.
  void begin(DeviceQueue& queue) const {
    if (generation == 1) return;
    const std::uint64_t before = (generation - 1) << 32;
    node->each_peer([&](int r) { queue.wait_flag(&node->ended(node->rank(), slot, r), before, replays); });
  }
  void end(DeviceQueue& queue) const {
    node->each_peer([&](int r) { queue.write_flag(&node->ended(r, slot, node->rank()), stamp(0), replays); });
  }
  // This rank's n-th Signal, and the peer's, from 1.
  void signal(DeviceQueue& queue, std::uint64_t n) const {
    node->each_peer(
        [&](int r) { queue.write_flag(&node->notices(r, slot, node->rank()), stamp(n), replays); });
  }
  void wait(DeviceQueue& queue, int peer, std::uint64_t n) const {
    queue.wait_flag(&node->notices(node->rank(), slot, peer), stamp(n), replays);
  }
  // Of this rank's memory, or of the slot's Staging.
  void* address(const Slice& slice, const Binding& binding) const {
    const bool own = slice.owner < 0 || (node && slice.owner == node->rank());
    if (slice.buffer == Buffer::Staging)
      return node->staging(own ? node->rank() : slice.owner, slot) + slice.offset * item_size(binding.dtype);
    MPI_GDR_CHECK(own);
    return const_cast<std::byte*>(source_address(slice, binding));
  }
};

// The rounds in order; in each the Signal, which is of earlier rounds, then Copy and Reduce by `local(step)`,
// then each Wait, and `waited()`.
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
