// Collectives on a device's memory: how a call becomes a device program and a host program.
#include "common/error.hpp"
#include "engine/call_check.hpp"
#include "engine/engine.hpp"
#include "engine/group.hpp"
#include "engine/peer_execution.hpp"
#include "engine/stream_execution.hpp"

namespace mpigdr {
namespace {

// What ranks agree on, in short.
std::uint32_t digest(const CollectiveSpec& spec, std::uint64_t sequence) {
  const CallHeader::Call call = agreed_part(spec);
  std::uint64_t mixed = 0xcbf29ce484222325u;  // FNV-1a, by words
  for (const std::uint64_t word :
       {sequence, call.count, static_cast<std::uint64_t>(call.root),
        static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.dtype),
        static_cast<std::uint64_t>(call.op)})
    mixed = (mixed ^ word) * 0x100000001b3u;
  return static_cast<std::uint32_t>(mixed ^ (mixed >> 32));
}

}  // namespace

std::shared_ptr<DeviceProgram> Group::make_program(const CollectiveCall& call, Channel channel,
                                                   std::uint64_t sequence, Counters& counters,
                                                   const StreamTarget& target, std::string& algorithm,
                                                   std::vector<std::shared_ptr<void>>& kept) {
  const Plan plan = planner_->plan(call.spec, *transport_, false, reach(call.spec, true), options_.topology,
                                   target.through_host);
  algorithm = plan.algorithm->name;
  Binding binding = bind(call, channel, sequence, is_acknowledged(plan, call.spec, counters));
  const auto memory = [&](std::uint64_t count, const auto& allocate) -> void* {
    if (count == 0) return nullptr;
    kept.push_back(allocate(count * item_size(call.spec.dtype)));
    return kept.back().get();
  };
  binding.scratch = memory(plan.schedule->scratch_count, target.device_memory);
  binding.bounce = memory(plan.schedule->bounce_count, target.host_memory);
  if (plan.schedule->shared) {
    if (&device_node_->device() != &target.device)
      fail(ErrorCode::InvalidUsage, mpigdr::name(call.spec.collective), ": group ", name(),
           " shares the memory of another device of this rank: expected tensors on the device of its first "
           "collective");
    device_node_->refresh(counters.device_slots);
    return std::make_shared<PeerExecution>(plan.schedule, binding, device_node_, counters.device_slots++,
                                           digest(call.spec, sequence), target.flags);
  }
  return std::make_shared<StreamExecution>(plan.schedule, binding, *transport_, target.flags);
}

void Group::launch(Operation& operation, const std::vector<std::shared_ptr<DeviceProgram>>& programs,
                   const StreamTarget& target) {
  try {
    for (const auto& program : programs)
      program->launch(target.device, target.queues, target.caller,
                      program == programs.back() ? target.conclude : nullptr);
    // The group may have failed meanwhile: what was let go before it was there has to be let go once more.
    if (operation.finished() && operation.error()) operation.release_device();
  } catch (const std::exception& e) {
    const std::string text = operation.describe() + ": the device refused its part: " + e.what();
    fail_with("the group failed earlier: " + text, ErrorCode::System);
    engine_.carry(operation.shared_from_this(), false);  // which ends it, and lets the device go on
    fail(ErrorCode::System, text);
  }
}

}  // namespace mpigdr
