// Collectives on a device's memory: how a call becomes a device program and a host program.
#include <utility>

#include "common/error.hpp"
#include "diagnostics/call_check.hpp"
#include "engine/device_release.hpp"
#include "engine/engine.hpp"
#include "engine/group.hpp"
#include "execution/device/captured_program.hpp"
#include "execution/device/peer_execution.hpp"
#include "execution/device/stream_execution.hpp"

namespace mpigdr {
namespace {

// What ranks agree on, in short.
std::uint32_t digest(const CollectiveSpec& spec, std::uint64_t sequence) {
  const CallHeader::Call call = agreed_part(spec);
  return call_digest({sequence, call.count, static_cast<std::uint64_t>(call.root),
                      static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.dtype),
                      static_cast<std::uint64_t>(call.op)});
}

}  // namespace

void Group::check_place(const CollectiveSpec& spec, const StreamTarget& target) const {
  if (&device_node_->device() != &target.device)
    fail(ErrorCode::InvalidUsage, mpigdr::name(spec.collective), ": group ", name(),
         " shares the memory of another device of this rank: expected tensors on the device of its first "
         "collective");
}

bool Group::in_phases(const CollectiveSpec& spec, const Algorithm& algorithm) const {
  constexpr std::uint64_t kMostBytes = std::uint64_t{32}
                                       << 30;  // of what goes through staging memory in chunks
  if (!device_node_ || device_node_->size() == size_ || !algorithm.two_level) return false;
  return has_phases(spec, *options_.topology) && largest_buffer(spec) <= kMostBytes;
}

std::shared_ptr<DeviceProgram> Group::make_program(const CollectiveSpec& spec, const SchedulePtr& schedule,
                                                   Binding binding, std::uint64_t sequence,
                                                   Counters& counters, const StreamTarget& target,
                                                   DeviceWork& work) {
  const auto memory = [&](std::uint64_t count, const auto& allocate) -> void* {
    if (count == 0) return nullptr;
    work.kept.push_back(allocate(count * item_size(spec.dtype)));
    return work.kept.back().get();
  };
  binding.scratch = memory(schedule->scratch_count, target.device_memory);
  binding.bounce = memory(schedule->bounce_count, target.host_memory);
  if (!schedule->shared)
    return std::make_shared<StreamExecution>(schedule, binding, *transport_, target.flags);
  check_place(spec, target);
  // To map what others have may wait for the device.
  if (!Gate::any_holds_a_stream()) device_node_->refresh(counters.device_slots);
  return std::make_shared<PeerExecution>(schedule, binding, device_node_, counters.device_slots++,
                                         digest(spec, sequence), target.flags);
}

void Group::make_programs(const CollectiveCall& call, Channel channel, std::uint64_t sequence,
                          Counters& counters, const StreamTarget& target, std::string& algorithm,
                          DeviceWork& work) {
  if (const Choice chosen = choose(call.spec, true); in_phases(call.spec, *chosen.algorithm)) {
    algorithm = chosen.algorithm->name;
    return make_phases(call, chosen.leaders, channel, sequence, counters, target, work);
  }
  const Plan plan = planner_->plan(call.spec, false, reach(true), options_.topology, target.through_host);
  algorithm = plan.algorithm->name;
  Binding binding =
      bind(call, channel, sequence, is_acknowledged(plan.schedule->one_way, call.spec, counters));
  binding.send_counts = call.spec.send_counts;
  binding.recv_counts = call.spec.recv_counts;
  work.programs.push_back(
      {make_program(call.spec, plan.schedule, binding, sequence, counters, target, work)});
}

void Group::make_phases(const CollectiveCall& call, int leaders, Channel channel, std::uint64_t sequence,
                        Counters& counters, const StreamTarget& target, DeviceWork& work) {
  const auto made = planner_->phases(call.spec, *options_.topology, leaders, target.through_host);
  // Counted on all ranks, also on those that send nothing between the nodes.
  const bool acknowledged = is_acknowledged(made->one_way, call.spec, counters);
  void* common = nullptr;
  if (made->scratch_count) {
    work.kept.push_back(target.device_memory(made->scratch_count * item_size(call.spec.dtype)));
    common = work.kept.back().get();
  }
  std::vector<int> numbers;  // by phase: its program
  int last_inside = -1, last_between = -1;
  for (const Phase& phase : made->phases) {
    const auto memory = [&](Buffer buffer) {
      return buffer == Buffer::Input    ? const_cast<void*>(call.input)
             : buffer == Buffer::Output ? call.output
                                        : common;
    };
    Binding binding = bind(call, channel, sequence, acknowledged && !phase.inside);
    binding.input = memory(phase.input);
    binding.output = memory(phase.output);
    binding.op = phase.spec.op;
    if (binding.op != ReduceOp::PreMulSum) binding.factor = 1.0;
    if (binding.op != ReduceOp::Avg) binding.divisor = 1;
    int& last = phase.inside ? last_inside : last_between;
    const int behind = phase.behind < 0 ? -1 : numbers[static_cast<std::size_t>(phase.behind)];
    const auto on = phase.inside ? DevicePart::On::First : DevicePart::On::Others;
    work.programs.push_back(
        {make_program(phase.spec, phase.schedule, binding, sequence, counters, target, work), on, last,
         behind});
    last = static_cast<int>(work.programs.size()) - 1;
    numbers.push_back(last);
  }
}

void Group::launch(Operation& operation, const DeviceWork& work, const StreamTarget& target) {
  try {
    mpigdr::launch(work.programs, target);
    // The group may have failed meanwhile: what was let go before it was there has to be let go once more.
    if (operation.finished() && operation.error()) operation.release_device();
  } catch (const std::exception& e) {
    const std::string text = operation.describe() + ": the device refused its part: " + e.what();
    // It has no Work that would see to that.
    operation.on_finished([refused = operation.shared_from_this()] { let_the_device_go_on(refused); });
    fail_with("the group failed earlier: " + text, ErrorCode::System, true);
    engine_.carry(operation.shared_from_this(), false);  // which ends it
    fail(ErrorCode::System, text);
  }
}

void Group::capture(const std::vector<Call>& calls, const std::string& name, const StreamTarget& target,
                    std::function<void()> on_failure) {
  check(calls, name);
  std::lock_guard lock(issue_mutex_);
  if (shut_) fail(ErrorCode::InvalidUsage, name, ": group ", this->name(), " has been destroyed");
  std::vector<std::pair<Plan, Binding>> programs;
  bool waits = false;  // for other ranks
  for (const Call& any : calls) {
    const auto* const call = std::get_if<CollectiveCall>(&any);
    std::string why = "messages are carried by the host";
    if (call) {
      if (failed()) fail(ErrorCode::Aborted, name, ": ", failure());
      const Plan plan = planner_->plan(call->spec, false, reach(true), options_.topology);
      why.clear();
      // Some ranks' part of an all_to_all by messages may be without any.
      if (size_ > 1 && is_all_to_all(any) && !plan.schedule->shared)
        why = "it goes by messages, which the host carries";
      if (why.empty() && can_be_captured(*plan.schedule, why)) {
        if (plan.schedule->shared) check_place(call->spec, target);
        waits |= plan.schedule->shared;
        programs.emplace_back(plan, bind(*call, Channel::Accelerator, 0, false));
        continue;
      }
      why = "by the algorithm " + std::string(plan.algorithm->name) + ' ' + why;
    }
    fail(ErrorCode::InvalidUsage, name, ": the current stream is being captured into a graph, and group ",
         this->name(), " cannot replay this call: ", why,
         ". Call it outside of the graph. What can be replayed are collectives of a group on one host whose "
         "devices share staging memory");
  }
  if (waits) {
    captured_on_.store(device_node_.get(), std::memory_order_release);
    std::lock_guard failure_lock(failure_mutex_);  // who fails it later finds both
    if (!failed()) on_failure_ = std::move(on_failure);
  }
  if (failed()) fail(ErrorCode::Aborted, name, ": ", failure());
  DeviceQueue& queue = *target.queues[0];
  target.device.order(target.caller, queue);
  for (const auto& [plan, binding] : programs)
    submit_captured(*plan.schedule, binding, device_node_.get(), queue);
  if (target.conclude) target.conclude();
}

bool Group::replays_take_turns() const {
  const ipc::DeviceNode* const node = captured_on_.load(std::memory_order_acquire);
  return node && node->takes_turns();
}

}  // namespace mpigdr
