#include "engine/program_factory.hpp"

#include "execution/chained_execution.hpp"
#include "execution/host/host_execution.hpp"

namespace mpi_gdr {
namespace {

// One one-way operation in this many waits for its receivers: this and the window bound a sender's lead.
constexpr std::uint64_t kAcknowledgedEvery = 16;

bool sends_anything(const CollectiveSpec& spec) { return spec.count > 0 || !spec.counts.empty(); }

}  // namespace

bool ProgramFactory::is_acknowledged(bool one_way, const CollectiveSpec& spec, Counters& counters) {
  // Depends only on what all ranks share: both sides must agree. Uneven blocks are not all empty.
  return one_way && sends_anything(spec) && counters.one_way++ % kAcknowledgedEvery == 0;
}

ProgramFactory::ProgramFactory(Options options, Transport& transport)
    : options_(std::move(options)),
      transport_(transport),
      rank_(transport.rank()),
      size_(transport.size()),
      tags_(transport.max_tag()),
      rivals_(options_.group.node && !options_.group.topology && options_.traffic &&
                      options_.planner->adapts()
                  ? std::make_unique<RivalChoices>(*options_.group.node, *options_.traffic,
                                                   options_.group.name, options_.group.choices)
                  : nullptr) {}

const SelectionRow& ProgramFactory::choose(const CollectiveSpec& spec, bool on_device) const {
  return options_.planner->choice(spec, !on_device && has_native(spec), reach(spec, on_device),
                                  topology(spec, on_device));
}

std::shared_ptr<const Topology> ProgramFactory::topology(const CollectiveSpec& spec, bool on_device) const {
  if (on_device && spec.collective == Collective::AllToAll) return nullptr;
  return options_.group.topology;
}

Reach ProgramFactory::reach(bool on_device) const {
  if (on_device && !device_node_) return Reach::None;
  if (on_device) return device_node_->size() == size_ ? Reach::Devices : Reach::NodesDevices;
  if (!options_.group.node) return Reach::None;
  return options_.group.topology ? Reach::Nodes : options_.group.node->reach();
}

bool ProgramFactory::by_library(const CollectiveSpec& spec) const {
  if (!library_ || spec.collective == Collective::Barrier) return false;
  const bool served = !reduces(spec.collective)
                          ? nccl::serves(spec.dtype)
                          : options_.planner->bits() == Bits::Any && nccl::serves(spec.dtype, spec.op);
  return served && (options_.group.topology || !options_.planner->has_user_row(spec));
}

std::unique_ptr<Execution> ProgramFactory::make_part(const Call& call, const Numbered& numbered) {
  if (const auto* message = std::get_if<MessageCall>(&call)) {
    numbered.algorithm = transport_.message_path();
    return std::make_unique<MessageExecution>(*message, transport_);
  }
  if (const auto* chained = std::get_if<ChainedCall>(&call)) {
    auto next = [this, channel = numbered.channel, first = numbered.call,
                 next = chained->next]() -> std::unique_ptr<Execution> {
      const std::optional<CollectiveCall> second = next();
      return second ? make_second(*second, channel, first) : nullptr;
    };
    return std::make_unique<ChainedExecution>(make_collective(chained->first, numbered), std::move(next));
  }
  return make_collective(std::get<CollectiveCall>(call), numbered);
}

std::unique_ptr<Execution> ProgramFactory::make_collective(const CollectiveCall& c,
                                                           const Numbered& numbered) {
  const Plan plan = this->plan(c.spec);
  numbered.algorithm = plan.algorithm->name;
  numbered.counters.all_to_alls += c.spec.collective == Collective::AllToAll && !plan.algorithm->shared;
  if (plan.then) return make_by_nodes(c, plan, numbered);
  if (!plan.schedule) {
    const NativeCollective native{c.spec.collective, c.input,   c.output,   c.spec.count,
                                  c.spec.dtype,      c.spec.op, c.spec.root};
    return std::make_unique<NativeExecution>(native, numbered.channel, transport_);
  }
  const bool acknowledged = is_acknowledged(plan.schedule->one_way, c.spec, numbered.counters);
  return run_schedule(plan, c, numbered.channel, numbered.call, acknowledged,
                      plan.schedule->shared ? numbered.counters.slots++ : 0,
                      rivals_of(plan, c.spec, numbered.counters));
}

RivalChoices::Call ProgramFactory::rivals_of(const Plan& plan, const CollectiveSpec& spec,
                                             Counters& counters) const {
  if (!rivals_ || !plan.schedule->staged || spec.collective == Collective::AllToAll) return {};
  return {rivals_.get(), counters.rivals++, mean_count(spec) * item_size(spec.dtype)};
}

std::vector<RivalChoices::Report> ProgramFactory::rival_report() const {
  return rivals_ ? rivals_->report() : std::vector<RivalChoices::Report>{};
}

std::unique_ptr<Execution> ProgramFactory::make_by_nodes(const CollectiveCall& c, const Plan& first,
                                                         const Numbered& numbered) {
  // Owned by `next`. The first stage's input is this rank's own counts.
  auto call = std::make_shared<CollectiveCall>(c);
  const Topology& nodes = *options_.group.topology;
  auto& all = call->spec.node_counts;
  const auto own = static_cast<std::size_t>(nodes.place(rank_) * size_);
  all.resize(nodes.members(nodes.node(rank_)).size() * static_cast<std::size_t>(size_));
  std::ranges::copy(c.spec.send_counts, all.begin() + static_cast<std::ptrdiff_t>(own));

  CollectiveCall counts{
      .spec = {Collective::AllToAll, rank_, size_}, .input = &all[own], .output = all.data()};
  counts.spec.dtype = DataType::Int64;
  const std::uint64_t slot_use = numbered.counters.slots;
  if (first.schedule->shared) numbered.counters.slots += 2;
  auto next = [this, call, then = first.then, channel = numbered.channel, record = numbered.call, slot_use] {
    const Plan plan = options_.planner->build(*then, call->spec, reach(), options_.group.topology);
    return run_schedule(plan, *call, channel, record, false, slot_use + 1);
  };
  return std::make_unique<ChainedExecution>(
      run_schedule(first, counts, numbered.channel, numbered.call, false, slot_use), std::move(next));
}

std::unique_ptr<Execution> ProgramFactory::make_second(const CollectiveCall& c, Channel channel,
                                                       const CallRecord& first) {
  check(c.spec, name(c.spec.collective), {options_.group.name, rank_, size_, transport_.max_tag()});
  const Plan plan = options_.planner->plan(c.spec, false, Reach::None, options_.group.topology);
  // Counters belong to issuing threads: acknowledge every one-way call, use no slot.
  return run_schedule(plan, c, channel, record_of(c, first.sequence + 1, first.history),
                      plan.schedule->one_way && sends_anything(c.spec), 0);
}

Binding ProgramFactory::bind(const CollectiveCall& c, Channel channel, const CallRecord& call,
                             bool acknowledged) const {
  Binding binding;
  binding.input = c.input;
  binding.output = c.output;
  binding.dtype = c.spec.dtype;
  binding.op = c.spec.op;
  binding.factor = c.factor;
  binding.divisor = c.spec.op == ReduceOp::Avg ? static_cast<std::uint32_t>(size_) : 1;
  binding.exact = options_.planner->bits() == Bits::Exact && reduces(c.spec.collective);
  binding.channel = channel;
  binding.call = call;
  binding.tag_base = tags_.base(call);
  binding.acknowledged = acknowledged;
  return binding;
}

std::unique_ptr<Execution> ProgramFactory::run_schedule(const Plan& plan, const CollectiveCall& c,
                                                        Channel channel, const CallRecord& call,
                                                        bool acknowledged, std::uint64_t slot_use,
                                                        const RivalChoices::Call& rivals) {
  Binding binding = bind(c, channel, call, acknowledged);
  binding.node = options_.group.node.get();
  binding.slot_use = slot_use;
  binding.rivals = rivals;
  binding.observer = options_.rounds;
  if (plan.algorithm->shared) {
    binding.send_counts = c.spec.send_counts;
    binding.recv_counts = c.spec.recv_counts;
  }
  return std::make_unique<HostExecution>(plan.schedule, std::move(binding), transport_, *options_.scratch);
}

// All messages of all_to_alls may go one way, which no rank can detect: a barrier bounds the senders' lead.
bool ProgramFactory::barrier_is_due(const Counters& before, const Counters& now) {
  return before.all_to_alls / kAcknowledgedEvery != now.all_to_alls / kAcknowledgedEvery;
}

}  // namespace mpi_gdr
