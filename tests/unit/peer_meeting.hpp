// Runs schedules on memory that ranks on devices of the software CUDA share.
#pragma once

#include "device_algorithms.hpp"
#include "execution/device/peer_execution.hpp"
#include "node_areas.hpp"
#include "stream_harness.hpp"

namespace stream_test {

// The staged variant, as the planner selects for devices.
inline SchedulePtr build_shared(const Algorithm& algorithm, const CollectiveSpec& spec) {
  const Tuning tuning{.chunk_bytes = 64, .max_lanes = 3, .staging_bytes = 2048, .in_place = true};
  const SchedulePtr built = algorithm.build(spec, tuning);
  return built->staged ? built->staged : built;
}

// Connects the nodes of a group, as c10d/backend_device.cpp does.
class Meeting {
 public:
  explicit Meeting(int size) : areas_(unit::make_areas(size)), barrier_(size) {}
  std::shared_ptr<ipc::DeviceNode> meet(Rank& rank) {
    auto node = std::make_shared<ipc::DeviceNode>(rank.device, rank.rank(),
                                                  areas_[static_cast<std::size_t>(rank.rank())]);
    node->publish();
    barrier_.arrive_and_wait();
    std::string why;
    if (!node->attach(why)) fail(ErrorCode::Internal, why);
    barrier_.arrive_and_wait();
    return node;
  }
  void wait() { barrier_.arrive_and_wait(); }

 private:
  const std::vector<ipc::Areas> areas_;
  std::barrier<> barrier_;
};

// Runs `body(rank, node, meeting)` on ranks whose nodes last until all have ended.
template <typename Body>
void on_node(const Layout& layout, const Body& body) {
  Meeting meeting(layout.size);
  on_all_ranks(layout, [&](Rank& rank) {
    const auto node = meeting.meet(rank);
    body(rank, node, meeting);
    meeting.wait();
  });
}
using NodePtr = std::shared_ptr<ipc::DeviceNode>;

// Buffers of an operation that are group memory: input, output, one for both (in place).
enum Grouped : unsigned { kInput = 1, kOutput = 2, kSame = 4 };

inline void take_group_memory(Operation& operation, ipc::DeviceArena& arena, unsigned grouped) {
  const auto room = [&](std::size_t elements) { return arena.allocate((elements + 1) * sizeof(Element)); };
  const bool same = grouped & kSame && operation.spec.collective == Collective::AllReduce;
  if (grouped & kOutput || same) operation.binding.output = room(operation.output.size());
  if (same)
    operation.binding.input = operation.binding.output;
  else if (grouped & kInput)
    operation.binding.input = static_cast<Element*>(room(operation.input.size() + 1)) + 1;
}

inline std::unique_ptr<Operation> issue(const Algorithm& algorithm, Rank& rank, int size, std::uint64_t count,
                                        int index, const std::shared_ptr<ipc::DeviceNode>& node,
                                        std::shared_ptr<PeerExecution>& execution, unsigned grouped = 0) {
  auto operation = std::make_unique<Operation>(algorithm, rank.rank(), size, count, index);
  operation->schedule = build_shared(algorithm, operation->spec);
  if (grouped) take_group_memory(*operation, ipc::DeviceArena::of(rank.device), grouped);
  operation->produce(*rank.caller);
  node->group_memory().refresh(static_cast<std::uint64_t>(index));
  execution = std::make_shared<PeerExecution>(operation->schedule, operation->binding, node,
                                              static_cast<std::uint64_t>(index),
                                              1000u + static_cast<unsigned>(index), rank.flags);
  execution->launch(rank.device, rank.queues, *rank.caller, nullptr);
  rank.device.order(*rank.queues[0], *rank.caller);
  operation->consume(*rank.caller);
  return operation;
}

}  // namespace stream_test
