// Collectives on a device's memory: how a call becomes a device program and a host program.
#include <utility>

#include "common/error.hpp"
#include "engine/program_factory.hpp"
#include "execution/device/captured_program.hpp"
#include "execution/device/gate.hpp"
#include "execution/device/peer_execution.hpp"
#include "execution/device/stream_execution.hpp"

namespace mpigdr {
namespace {

// Null for nothing.
template <typename Allocate>
void* keep(DeviceWork& work, std::uint64_t bytes, const Allocate& allocate) {
  if (bytes == 0) return nullptr;
  work.kept.push_back(allocate(bytes));
  return work.kept.back().get();
}

}  // namespace

void ProgramFactory::keep_for_good(std::shared_ptr<const ipc::DeviceNode> node) {
  static_cast<void>(new std::shared_ptr<const ipc::DeviceNode>(std::move(node)));
}

// By whichever thread drops the last reference, nobody may touch the device any more.
ProgramFactory::~ProgramFactory() {
  if (device_node_) keep_for_good(std::move(device_node_));
}

std::shared_ptr<const ipc::DeviceNode> ProgramFactory::share_devices(
    std::shared_ptr<const ipc::DeviceNode> node) {
  return std::exchange(device_node_, std::move(node));
}

void ProgramFactory::check_device(const CollectiveSpec& spec, const StreamTarget& target) const {
  if (&device_node_->device() != &target.device)
    fail(ErrorCode::InvalidUsage, mpigdr::name(spec.collective), ": group ", options_.group,
         " shares the memory of another device of this rank: expected tensors on the device of its first "
         "collective");
}

const SelectionRow* ProgramFactory::row_in_phases(const CollectiveSpec& spec) const {
  constexpr std::uint64_t kMostBytes = std::uint64_t{32}
                                       << 30;  // of what goes through staging memory in chunks
  if (!device_node_ || device_node_->size() == size_ || !has_phases(spec, *options_.topology) ||
      largest_buffer(spec) > kMostBytes)
    return nullptr;
  const SelectionRow& chosen = choose(spec, true);
  return chosen.algorithm->two_level && !chosen.algorithm->ordered ? &chosen : nullptr;
}

std::shared_ptr<DeviceProgram> ProgramFactory::make_program(const CollectiveSpec& spec,
                                                            const SchedulePtr& schedule, Binding binding,
                                                            const Numbered& numbered,
                                                            const StreamTarget& target, DeviceWork& work) {
  binding.scratch = keep(work, schedule->scratch_count * item_size(spec.dtype), target.device_memory);
  binding.bounce = keep(work, schedule->bounce_count * item_size(spec.dtype), target.host_memory);
  if (!schedule->shared)
    return std::make_shared<StreamExecution>(schedule, binding, transport_, target.flags);
  check_device(spec, target);
  // To map what others have may wait for the device.
  if (!Gate::any_holds_a_stream()) device_node_->refresh(numbered.counters.device_slots);
  return std::make_shared<PeerExecution>(schedule, binding, device_node_, numbered.counters.device_slots++,
                                         static_cast<std::uint32_t>(numbered.call.history), target.flags);
}

void ProgramFactory::make_programs(const CollectiveCall& call, const Numbered& numbered,
                                   const StreamTarget& target, std::string& algorithm, DeviceWork& work) {
  Plan plan;
  if (call.spec.collective == Collective::AllToAll) {
    plan = options_.planner->build(choose_all_to_all(call.spec, true, numbered.counters), call.spec,
                                   reach(true), nullptr, target.through_host);
  } else {
    if (const SelectionRow* const chosen = row_in_phases(call.spec)) {
      algorithm = chosen->algorithm->name;
      return make_phases(call, chosen->leaders, numbered, target, work);
    }
    plan = options_.planner->plan(call.spec, false, reach(true), options_.topology, target.through_host);
  }
  algorithm = plan.algorithm->name;
  Binding binding = bind(call, numbered.channel, numbered.call,
                         is_acknowledged(plan.schedule->one_way, call.spec, numbered.counters));
  binding.send_counts = call.spec.send_counts;
  binding.recv_counts = call.spec.recv_counts;
  work.programs.push_back({make_program(call.spec, plan.schedule, binding, numbered, target, work)});
}

void ProgramFactory::make_phases(const CollectiveCall& call, int leaders, const Numbered& numbered,
                                 const StreamTarget& target, DeviceWork& work) {
  const auto made = options_.planner->phases(call.spec, *options_.topology, leaders, target.through_host);
  // Counted on all ranks, also on those that send nothing between the nodes.
  const bool acknowledged = is_acknowledged(made->one_way, call.spec, numbered.counters);
  void* const common = keep(work, made->scratch_count * item_size(call.spec.dtype), target.device_memory);
  std::vector<int> numbers;  // by phase: its program
  int last_inside = -1, last_between = -1;
  for (const Phase& phase : made->phases) {
    const auto memory = [&](Buffer buffer) {
      return buffer == Buffer::Input    ? const_cast<void*>(call.input)
             : buffer == Buffer::Output ? call.output
                                        : common;
    };
    Binding binding = bind(call, numbered.channel, numbered.call, acknowledged && !phase.inside);
    binding.input = memory(phase.input);
    binding.output = memory(phase.output);
    binding.op = phase.spec.op;
    if (binding.op != ReduceOp::PreMulSum) binding.factor = 1.0;
    if (binding.op != ReduceOp::Avg) binding.divisor = 1;
    int& last = phase.inside ? last_inside : last_between;
    const int behind = phase.depends_on < 0 ? -1 : numbers[static_cast<std::size_t>(phase.depends_on)];
    const auto on = phase.inside ? DevicePart::On::First : DevicePart::On::Others;
    work.programs.push_back(
        {make_program(phase.spec, phase.schedule, binding, numbered, target, work), on, last, behind});
    last = static_cast<int>(work.programs.size()) - 1;
    numbers.push_back(last);
  }
}

ProgramFactory::Captured ProgramFactory::make_captured(const std::vector<Call>& calls,
                                                       const std::string& name, const StreamTarget& target) {
  Captured captured;
  for (const Call& any : calls) {
    const auto* const call = std::get_if<CollectiveCall>(&any);
    std::string why = "messages are carried by the host";
    if (call) {
      const Plan plan = options_.planner->plan(call->spec, false, reach(true), topology(call->spec, true));
      why.clear();
      // Some ranks' part of an all_to_all by messages may be without any.
      if (size_ > 1 && is_all_to_all(any) && !plan.schedule->shared)
        why = "it goes by messages, which the host carries";
      if (why.empty() && can_be_captured(*plan.schedule, why)) {
        if (plan.schedule->shared) check_device(call->spec, target);
        captured.waits |= plan.schedule->shared;
        captured.programs.emplace_back(plan, bind(*call, Channel::Accelerator, {}, false));
        continue;
      }
      why = "by the algorithm " + std::string(plan.algorithm->name) + ' ' + why;
    }
    fail(ErrorCode::InvalidUsage, name, ": the current stream is being captured into a graph, and group ",
         options_.group, " cannot replay this call: ", why,
         ". Call it outside of the graph. What can be replayed are collectives of a group on one host whose "
         "devices share staging memory");
  }
  if (captured.waits) captured_on_.store(device_node_.get(), std::memory_order_release);
  return captured;
}

void ProgramFactory::record(const Captured& captured, const StreamTarget& target) {
  DeviceQueue& queue = *target.queues[0];
  target.device.order(target.caller, queue);
  for (const auto& [plan, binding] : captured.programs)
    submit_captured(*plan.schedule, binding, device_node_.get(), queue);
  if (target.conclude) target.conclude();
}

}  // namespace mpigdr
