#include "execution/device/peer_execution.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace mpi_gdr {
namespace {

// A plain copy as a sum of one source, of integers, so that no bit changes.
ReduceArgs as_bytes(ReduceArgs args) {
  const std::size_t item = item_size(args.dtype);
  args.op = ReduceOp::Sum;
  constexpr DataType kOfSize[] = {DataType::UInt8, DataType::Int16, DataType::Int32, DataType::Int64};
  args.dtype = kOfSize[std::min(std::countr_zero(item), 3)];
  args.count *= item / item_size(args.dtype);
  return args;
}

}  // namespace

PeerExecution::PeerExecution(SchedulePtr schedule, const Binding& binding,
                             std::shared_ptr<const ipc::DeviceNode> node, std::uint64_t use,
                             std::uint32_t call, std::shared_ptr<StreamFlagPool> flags)
    : NodeProgram(schedule->rounds.size(), binding, *node, use, call, std::move(flags)),
      schedule_(std::move(schedule)),
      memory_(std::move(node)),
      slot_use_{memory_.get(), slot_, generation_},
      mirrors_(!schedule_->originals.empty() && memory_->group_memory().any()) {
  MPI_GDR_CHECK(!schedule_->messages && schedule_->lanes.size() <= 1 &&
                schedule_->staging_count * item_size(binding.dtype) <= ipc::kStagingBytes);
  shown_input_ = shown(binding_.input, Buffer::Input, use);
  shown_output_ = shown(binding_.output, Buffer::Output, use);
}

std::uint64_t PeerExecution::shown(const void* memory, Buffer buffer, std::uint64_t use) const {
  const auto of_buffer = [&](const Original& original) { return original.buffer == buffer; };
  if (!mirrors_ || !memory ||
      std::none_of(schedule_->originals.begin(), schedule_->originals.end(), of_buffer))
    return 0;
  // Not published if misaligned: the kernels of other ranks could not access it, nor report that.
  if (reinterpret_cast<std::uintptr_t>(memory) % std::min<std::size_t>(16, item_size(binding_.dtype)) != 0)
    return 0;
  const auto found = memory_->group_memory().find(memory, use);
  return found ? shown_word(call_, found->segment, found->offset) : 0;
}

void PeerExecution::resolve_addresses(DeviceQueue& queue) const {
  ResolveArgs args;
  args.table = memory_->table(slot_);
  args.ranks = memory_->size();
  args.stamp = shown_stamp(call_);
  args.rank = memory_->rank();
  for (int r = 0; r < args.ranks; ++r)
    args.given_up[static_cast<std::size_t>(r)] = &memory_->failed(memory_->rank(), r);
  for (int kind = 0; kind < 2; ++kind)
    for (int r = 0; r < args.ranks; ++r)
      args.shown[static_cast<std::size_t>(kind * args.ranks + r)] =
          &memory_->group_memory().part(r).shown[slot_][kind].value;
  args.bases = memory_->group_memory().own().bases[0];
  args.segments = ipc::DeviceSegments::kMax;
  queue.resolve(args);
}

void PeerExecution::submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) {
  announce_call();
  DeviceQueue& queue = *queues[0];
  device.order(caller, queue);
  slot_use_.begin(queue);
  if (mirrors_) {
    auto& words = memory_->group_memory().own().shown[slot_];
    queue.write_flag(&words[0].value, shown_input_);
    queue.write_flag(&words[1].value, shown_output_);
  }
  const auto local = [&](const Step& step) { submit(step, queue); };
  // During a Wait a rank may have abandoned the operation: resolve again behind it.
  submit_rounds(*schedule_, slot_use_, queue, local, [&] { looked_ = false; });
  slot_use_.end(queue);
}

void PeerExecution::submit(const Step& step, DeviceQueue& queue) {
  if (step.kind == StepKind::Copy) {
    const Original* const to = schedule_->original(step.dst);
    const Original* const from = schedule_->original(schedule_->source(step));
    if (to && to->buffer == Buffer::Input && shown_input_) return;
    if (from && from->buffer == Buffer::Output && shown_output_) return;
  }
  const auto where = [&](const Slice& slice) { return slot_use_.address(slice, binding_); };
  const LocalStep local = resolve(*schedule_, step, binding_, where, sources_);
  if (mirrors_ && submit_resolved(step, local.args, queue)) return;
  // A kernel's submission takes half the time of cudaMemcpyAsync, and with whole vectors it is as fast.
  const auto addresses = reinterpret_cast<std::uintptr_t>(local.args.dst) |
                         reinterpret_cast<std::uintptr_t>(local.args.sources[0]);
  if (local.kind == LocalStep::Kind::Copy && addresses % 16 == 0) return queue.reduce(as_bytes(local.args));
  mpi_gdr::submit(local, queue);
}

bool PeerExecution::submit_resolved(const Step& step, ReduceArgs args, DeviceQueue& queue) {
  const std::size_t item = item_size(binding_.dtype);
  ResolvedReduce out;
  out.table = memory_->table(slot_);
  out.ranks = memory_->size();
  if (const Original* const at = schedule_->original(step.dst); at && at->buffer == Buffer::Output) {
    out.to_outputs = true;
    out.output_offset = at->offset * item;
  }
  bool is_resolved = out.to_outputs;
  resolved_.clear();
  for (std::uint32_t k = 0; k < step.source_count; ++k) {
    const Slice& source = schedule_->source(step, k);
    const Original* const at = schedule_->original(source);
    const bool input = at && at->buffer == Buffer::Input;
    is_resolved |= input;
    const int owner = source.owner < 0 ? memory_->rank() : source.owner;
    resolved_.push_back(input ? ResolvedSource{owner, at->offset * item} : ResolvedSource{});
  }
  if (!is_resolved) return false;
  if (!looked_) resolve_addresses(queue);
  looked_ = true;
  out.resolved = resolved_.data();
  out.reduce = is_reduction(step, args) ? args : as_bytes(args);
  queue.reduce(out);
  return true;
}

// May run before launch(). Afterwards another rank's device may overwrite a flag with a lower value: callers
// repeat it until this device accesses no flag any more.
void PeerExecution::release_waits() noexcept {
  const int rank = memory_->rank();
  memory_->publish_failed();  // first: a peer that sees the released device's work must see this
  memory_->each_peer([&](int r) {
    raise(memory_->ended(rank, slot_, r), (generation_ - 1) << 32);
    raise(memory_->notices(rank, slot_, r), stamp(UINT32_MAX));
  });
}

}  // namespace mpi_gdr
