#include <utility>

#include "common/error.hpp"
#include "common/keep_until_exit.hpp"
#include "engine/program_factory.hpp"
#include "execution/device/captured_program.hpp"
#include "execution/device/gate.hpp"
#include "execution/device/library_execution.hpp"
#include "execution/device/peer_execution.hpp"
#include "execution/device/stream_execution.hpp"

namespace mpi_gdr {
namespace {

template <typename Allocate>
void* keep(DeviceWork& work, std::uint64_t bytes, const Allocate& allocate) {
  if (bytes == 0) return nullptr;
  work.kept.push_back(allocate(bytes));
  return work.kept.back().get();
}

}  // namespace

// Keeps both: any thread may drop the last reference, also at a time when the device must not be called.
ProgramFactory::~ProgramFactory() {
  if (device_node_) keep_until_exit(std::move(device_node_));
  if (library_) keep_until_exit(std::move(library_));
}

void ProgramFactory::check_device(const Device& shared, const CollectiveSpec& spec,
                                  const StreamTarget& target) const {
  if (&shared != &target.device)
    fail(ErrorCode::InvalidUsage, mpi_gdr::name(spec.collective), ": group ", options_.group.name,
         " uses another device of this rank: expected tensors on the device of its first collective");
}

std::shared_ptr<DeviceProgram> ProgramFactory::make_program(const Phase& phase, Binding binding,
                                                            const Numbered& numbered,
                                                            const StreamTarget& target, DeviceWork& work) {
  const auto history = static_cast<std::uint32_t>(numbered.call.history);
  const SchedulePtr& schedule = phase.schedule;
  if (schedule) {
    binding.scratch = keep(work, schedule->scratch_count * item_size(binding.dtype), target.device_memory);
    binding.bounce = keep(work, schedule->bounce_count * item_size(binding.dtype), target.host_memory);
  }
  switch (phase.kind) {
    case Phase::Kind::Messages:
      return std::make_shared<StreamExecution>(schedule, binding, transport_, target.flags);
    case Phase::Kind::Devices:
      check_device(device_node_->device(), phase.spec, target);
      // Mapping memory may wait for the device: a deadlock if a stream waits for a message.
      if (!Gate::any_holds_a_stream()) device_node_->group_memory().refresh(numbered.counters.device_slots);
      return std::make_shared<PeerExecution>(schedule, binding, device_node_,
                                             numbered.counters.device_slots++, history, target.flags);
    case Phase::Kind::Library:
      check_device(library_->device(), phase.spec, target);
      return std::make_shared<LibraryExecution>(phase.calls, binding, library_,
                                                numbered.counters.nccl_slots++, history, target.flags);
    case Phase::Kind::Shared:
      break;
  }
  fail(ErrorCode::Internal, "a device runs no phase in memory of the host");
}

void ProgramFactory::make_programs(const CollectiveCall& call, const Numbered& numbered,
                                   const StreamTarget& target, DeviceWork& work) {
  const Plan plan = this->plan(call.spec, true, target.through_host);
  numbered.algorithm = plan.name();
  numbered.counters.all_to_alls +=
      call.spec.collective == Collective::AllToAll && !plan.phases && !plan.algorithm->shared;
  const Phases alone = plan.phases ? Phases{} : whole_of(call.spec, plan.schedule);
  const Phases& made = plan.phases ? *plan.phases : alone;
  // Counted on all ranks, even if this one sends nothing between nodes.
  const bool acknowledged = is_acknowledged(made.one_way, call.spec, numbered.counters);
  void* const common = keep(work, made.scratch_count * item_size(call.spec.dtype), target.device_memory);
  const auto memory = [&](Buffer buffer) {
    return buffer == Buffer::Input    ? const_cast<void*>(call.input)
           : buffer == Buffer::Output ? call.output
                                      : common;
  };
  const auto before = static_cast<int>(work.programs->size());
  int last_inside = -1, last_between = -1;
  for (const Phase& phase : made.phases) {
    const CollectiveCall part{phase.spec, memory(phase.input), memory(phase.output), call.factor};
    const bool messages = phase.kind == Phase::Kind::Messages;
    Binding binding = bind(part, numbered.channel, numbered.call, acknowledged && messages);
    binding.send_counts = phase.spec.send_counts;
    binding.recv_counts = phase.spec.recv_counts;
    const auto on = messages ? DevicePart::On::Others : DevicePart::On::First;
    int& last = messages ? last_between : last_inside;
    work.programs->push_back({make_program(phase, binding, numbered, target, work),
                              plan.phases ? on : DevicePart::On::All, last,
                              phase.depends_on < 0 ? -1 : before + phase.depends_on});
    last = static_cast<int>(work.programs->size()) - 1;
  }
}

ProgramFactory::Captured ProgramFactory::make_captured(const std::vector<Call>& calls,
                                                       const std::string& name, const StreamTarget& target) {
  Captured captured;
  for (const Call& any : calls) {
    const auto* const call = std::get_if<CollectiveCall>(&any);
    std::string why = "the host transfers messages";
    if (call) {
      const Plan plan = this->plan(call->spec, true);
      if (reach(call->spec, true) == Reach::Library) {
        check_device(library_->device(), call->spec, target);
        captured.waits = true;
        captured_by_.store(library_.get(), std::memory_order_release);
        CollectiveCall part = *call;
        if (plan.phases->phases[0].input == Buffer::Output) part.input = part.output;
        captured.programs.emplace_back(plan, bind(part, Channel::Accelerator, {}, false));
        continue;
      }
      why.clear();
      // This rank may have no messages in an all_to_all in which other ranks have some.
      if (plan.phases || (size_ > 1 && is_all_to_all(any) && !plan.schedule->shared))
        why = "uses messages, which the host transfers";
      if (why.empty() && can_be_captured(*plan.schedule, why)) {
        if (plan.schedule->shared) check_device(device_node_->device(), call->spec, target);
        captured.waits |= plan.schedule->shared;
        if (plan.schedule->shared) captured_on_.store(device_node_.get(), std::memory_order_release);
        captured.programs.emplace_back(plan, bind(*call, Channel::Accelerator, {}, false));
        continue;
      }
      why = "algorithm " + std::string(plan.algorithm->name) + ' ' + why;
    }
    fail(ErrorCode::InvalidUsage, name, ": the current stream is being captured into a graph, and group ",
         options_.group.name, " cannot replay this call: ", why,
         ". Call it outside of the graph. Only collectives of a group on one host whose devices share "
         "memory, or have NCCL, can be replayed");
  }
  return captured;
}

void ProgramFactory::release_replays() const noexcept {
  if (const ipc::DeviceNode* const node = captured_on_.load(std::memory_order_acquire))
    node->release_replays();
  if (nccl::Communicator* const library = captured_by_.load(std::memory_order_acquire)) library->abort();
}

void ProgramFactory::record(const Captured& captured, const StreamTarget& target) {
  DeviceQueue& queue = *target.queues[0];
  target.device.order(target.caller, queue);
  for (const auto& [plan, binding] : captured.programs)
    if (plan.phases)
      library_->record(*plan.phases->phases[0].calls, arguments_of(binding), queue,
                       std::chrono::steady_clock::now() + options_.group.timeout);
    else
      submit_captured(*plan.schedule, binding, device_node_.get(), queue);
  if (target.conclude) target.conclude();
}

}  // namespace mpi_gdr
