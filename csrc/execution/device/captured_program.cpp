#include "execution/device/captured_program.hpp"

#include <vector>

#include "execution/device/peer_rounds.hpp"

namespace mpi_gdr {

bool can_be_captured(const Schedule& schedule, std::string& why) {
  if (schedule.messages)
    why = "uses messages, which the host transfers";
  else if (schedule.scratch_count != 0 || schedule.bounce_count != 0)
    why = "needs memory that the devices do not share";
  return why.empty();
}

void submit_captured(const Schedule& schedule, const Binding& binding, const ipc::DeviceNode* node,
                     DeviceQueue& queue) {
  const bool shared = schedule.shared;
  MPI_GDR_CHECK(!shared || (node && schedule.lanes.size() <= 1 &&
                            schedule.staging_count * item_size(binding.dtype) <= ipc::kStagingBytes));
  const SlotUse slot{shared ? node : nullptr, ipc::kGraphSlot, 0, shared ? node->replays() : Replays{}};
  std::vector<const void*> sources;
  const auto address = [&](const Slice& slice) { return slot.address(slice, binding); };
  const auto local = [&](const Step& step) {
    submit(resolve(schedule, step, binding, address, sources), queue);
  };
  if (shared) queue.count_replay(slot.replays);
  if (shared) slot.begin(queue);
  submit_rounds(schedule, slot, queue, local, [] {});
  if (shared) slot.end(queue);
}

}  // namespace mpi_gdr
