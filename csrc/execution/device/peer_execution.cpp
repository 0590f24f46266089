#include "execution/device/peer_execution.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/fnv1a.hpp"

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

std::uint32_t call_digest(std::initializer_list<std::uint64_t> words) {
  Fnv1a hash;
  for (const std::uint64_t word : words) hash.add_word(word);
  return static_cast<std::uint32_t>(hash.value() ^ (hash.value() >> 32));
}

PeerExecution::PeerExecution(SchedulePtr schedule, const Binding& binding,
                             std::shared_ptr<const ipc::DeviceNode> node, std::uint64_t use,
                             std::uint32_t call, std::shared_ptr<StreamFlagPool> flags)
    : DeviceProgram(std::move(schedule), binding, std::move(flags)),
      node_(std::move(node)),
      use_(use),
      slot_{node_.get(), static_cast<int>(use % ipc::kSlots), use / ipc::kSlots + 1},
      call_(call),
      mirrors_(!schedule_->originals.empty() && node_->size() <= kMostResolved && node_->any_group_memory()),
      compared_(static_cast<std::size_t>(node_->size())) {
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
  // Others could not access single elements, and could not report it.
  if (reinterpret_cast<std::uintptr_t>(memory) % std::min<std::size_t>(16, item_size(binding_.dtype)) != 0)
    return 0;
  const auto found = node_->find(memory, use);
  return found ? shown_word(call_, found->segment, found->offset) : 0;
}

void PeerExecution::resolve_addresses(DeviceQueue& queue) const {
  ResolveArgs args;
  args.table = node_->table(slot_.slot);
  args.ranks = node_->size();
  args.stamp = shown_stamp(call_);
  args.rank = node_->rank();
  for (int r = 0; r < args.ranks; ++r)
    args.given_up[static_cast<std::size_t>(r)] = &node_->failed(node_->rank(), r);
  for (int kind = 0; kind < 2; ++kind)
    for (int r = 0; r < args.ranks; ++r)
      args.shown[static_cast<std::size_t>(kind * args.ranks + r)] = &node_->shown(r, slot_.slot, kind);
  args.bases = node_->bases();
  args.segments = ipc::DeviceSegments::kMax;
  queue.resolve(args);
}

void PeerExecution::submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) {
  const int rank = node_->rank();
  for (int r = 0; r < node_->size(); ++r)
    node_->called(r, slot_.slot, rank)
        .store(called(r, binding_.send_counts, binding_.recv_counts), std::memory_order_release);
  DeviceQueue& queue = *queues[0];
  device.order(caller, queue);
  slot_.begin(queue);
  if (mirrors_) {
    queue.write_flag(&node_->shown(rank, slot_.slot, 0), shown_input_);
    queue.write_flag(&node_->shown(rank, slot_.slot, 1), shown_output_);
  }
  const auto local = [&](const Step& step) { submit(step, queue); };
  // During a Wait a rank may have abandoned the operation: resolve again behind it.
  submit_rounds(*schedule_, slot_, queue, local, [&] { looked_ = false; });
  slot_.end(queue);
}

void PeerExecution::submit(const Step& step, DeviceQueue& queue) {
  if (step.kind == StepKind::Copy) {
    const Original* const to = schedule_->original(step.dst);
    const Original* const from = schedule_->original(schedule_->source(step));
    if (to && to->buffer == Buffer::Input && shown_input_) return;
    if (from && from->buffer == Buffer::Output && shown_output_) return;
  }
  const auto where = [&](const Slice& slice) { return slot_.address(slice, binding_); };
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
  out.table = node_->table(slot_.slot);
  out.ranks = node_->size();
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
    const int owner = source.owner < 0 ? node_->rank() : source.owner;
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

bool PeerExecution::carry() {
  compare_calls();
  const bool ended = flags_.ended();
  look_for_failures(ended);
  if (!ended) return false;
  node_->note_end(use_);
  ++rounds_done_;
  return true;
}

void PeerExecution::look_for_failures(bool ended) const {
  const int rank = node_->rank();
  node_->each_peer([&](int r) {
    // Its device will never raise the flags that this one waits for.
    if (node_->concerns(node_->refused(rank, r), use_))
      fail(ErrorCode::Remote, "rank ", node_->member(r),
           " could not launch its part of this operation, or of another one of the group, on its device");
    // A rank sets `failed` before it releases its device, whose data is then invalid. Not checked before this
    // device has ended: until then pending_peers() may name the rank that caused it.
    if (ended && node_->concerns(node_->failed(rank, r), use_))
      fail(ErrorCode::Remote, "rank ", node_->member(r),
           " has abandoned this operation or an earlier one of the group");
  });
}

std::uint64_t PeerExecution::called(int peer, const std::vector<std::uint64_t>& sent,
                                    const std::vector<std::uint64_t>& received) const {
  if (sent.empty()) return slot_.stamp(call_);
  const auto r = static_cast<std::size_t>(peer);
  return slot_.stamp(call_digest({call_, sent[r], received[r]}));
}

// Skips a host that is ahead: it has overwritten its word with the next call in this slot.
void PeerExecution::compare_calls() {
  for (int r = 0; r < node_->size(); ++r) {
    if (r == node_->rank() || compared_[static_cast<std::size_t>(r)]) continue;
    const std::uint64_t theirs = node_->called(node_->rank(), slot_.slot, r).load(std::memory_order_acquire);
    if (theirs >> 32 < slot_.generation) continue;
    if (theirs >> 32 == slot_.generation && theirs != called(r, binding_.recv_counts, binding_.send_counts))
      fail(ErrorCode::Mismatch, "rank ", node_->member(r), " called another collective than this rank",
           binding_.send_counts.empty() ? "" : ", or sends or expects another number of elements",
           ". Expected equal calls in the same order on all ranks of the group");
    compared_[static_cast<std::size_t>(r)] = true;
  }
}

std::vector<int> PeerExecution::pending_peers() const {
  std::vector<int> absent, busy;
  node_->each_peer([&](int r) {
    if (node_->called(node_->rank(), slot_.slot, r).load(std::memory_order_acquire) < slot_.stamp(0))
      absent.push_back(node_->member(r));
    else if (node_->ended(node_->rank(), slot_.slot, r).load(std::memory_order_acquire) < slot_.stamp(0))
      busy.push_back(node_->member(r));
  });
  return absent.empty() ? busy : absent;
}

// Also before launch(). The device of another rank may overwrite a flag with a lower value afterwards:
// callers repeat it until the device is through.
void PeerExecution::release_waits() noexcept {
  const int rank = node_->rank();
  node_->publish_failed();  // first: a peer that sees the released device's work must see this
  node_->each_peer([&](int r) {
    raise(node_->ended(rank, slot_.slot, r), (slot_.generation - 1) << 32);
    raise(node_->notices(rank, slot_.slot, r), slot_.stamp(UINT32_MAX));
  });
}

}  // namespace mpi_gdr
