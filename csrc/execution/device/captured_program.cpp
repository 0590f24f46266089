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
  constexpr int kSlot = ipc::kGraphSlot;
  const auto address = [&](const Slice& slice) { return peer_address(slice, binding, node, kSlot); };
  std::vector<const void*> sources;
  const auto local = [&](const Step& step) {
    submit(resolve(schedule, step, binding, address, sources), queue);
  };
  if (!schedule.shared) {
    const auto none = [](auto...) { MPI_GDR_CHECK(false); };
    return submit_rounds(schedule, 1, none, local, none);
  }
  MPI_GDR_CHECK(node && schedule.lanes.size() <= 1 &&
                schedule.staging_count * item_size(binding.dtype) <= ipc::kStagingBytes);
  const int rank = node->rank(), size = node->size();
  const Replays replays = node->replays();
  queue.count_replay(replays);
  // The slot is free when all have ended the replay before.
  node->each_peer([&](int r) { queue.wait_replay(&node->ended(rank, kSlot, r), replays, 1, 0); });
  const auto signal = [&](std::uint32_t n) {
    node->each_peer([&](int r) { queue.write_replay(&node->notices(r, kSlot, rank), replays, n); });
  };
  const auto wait = [&](int peer, std::uint32_t n) {
    queue.wait_replay(&node->notices(rank, kSlot, peer), replays, 0, n);
  };
  submit_rounds(schedule, size, signal, local, wait);
  node->each_peer([&](int r) { queue.write_replay(&node->ended(r, kSlot, rank), replays, 0); });
}

}  // namespace mpi_gdr
