#include "engine/peer_execution.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "engine/local_step.hpp"
#include "engine/peer_lane.hpp"

namespace mpigdr {
namespace {

std::uint64_t stamp(std::uint64_t generation, std::uint64_t number) { return (generation << 32) | number; }

}  // namespace

PeerExecution::PeerExecution(SchedulePtr schedule, const Binding& binding,
                             std::shared_ptr<const ipc::DeviceNode> node, std::uint64_t use,
                             std::uint32_t call, std::shared_ptr<StreamFlagPool> flags)
    : schedule_(std::move(schedule)),
      binding_(binding),
      node_(std::move(node)),
      slot_(static_cast<int>(use % ipc::kSlots)),
      generation_(use / ipc::kSlots + 1),
      call_(call),
      pool_(std::move(flags)),
      flags_(pool_->acquire(1)),
      compared_(static_cast<std::size_t>(node_->size())) {
  static_assert(kMaxLanes <= ipc::kLanes);
  MPIGDR_CHECK(!schedule_->messages &&
               schedule_->staging_count * item_size(binding.dtype) <= ipc::kStagingBytes);
}

PeerExecution::~PeerExecution() {
  if (done_ || !launched_.load(std::memory_order_acquire))
    pool_->release(flags_);
  else
    pool_->leak();
}

void* PeerExecution::address(const Slice& slice) const {
  const int owner = slice.owner < 0 ? node_->rank() : slice.owner;
  if (slice.buffer == Buffer::Staging)
    return node_->staging(owner, slot_) + slice.offset * item_size(binding_.dtype);
  MPIGDR_CHECK(owner == node_->rank());
  return const_cast<std::byte*>(source_address(slice, binding_));
}

void PeerExecution::launch(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller,
                           const std::function<void()>& conclude) {
  const int rank = node_->rank(), size = node_->size();
  launched_.store(true, std::memory_order_release);
  for (int r = 0; r < size; ++r)
    node_->called(r, slot_, rank).store(stamp(generation_, call_), std::memory_order_release);
  const std::size_t lanes = schedule_->lanes.size();
  const std::size_t used = std::clamp<std::size_t>(lanes, 1, queues.size());
  DeviceQueue& first = *queues[0];
  device.order(caller, first);
  // The slot is free when all have ended what they had there before.
  for (int r = 0; r < size && generation_ > 1; ++r)
    if (r != rank) first.wait_flag64(&node_->ended(rank, slot_, r), generation_ - 1);
  for (std::size_t q = 1; q < used; ++q) device.order(first, *queues[q]);
  for (std::size_t lane = 0; lane < lanes; ++lane) submit_lane(static_cast<int>(lane), *queues[lane % used]);
  for (std::size_t q = 1; q < used; ++q) device.order(*queues[q], first);
  for (int r = 0; r < size; ++r)
    if (r != rank) first.write_flag64(&node_->ended(r, slot_, rank), generation_);
  if (conclude) conclude();
  first.write_flag(flags_.end(), flags_.base + 1);
}

void PeerExecution::submit_lane(int lane, DeviceQueue& queue) {
  const int rank = node_->rank(), size = node_->size();
  const auto notify = [&](std::uint32_t n) {
    for (int r = 0; r < size; ++r)
      if (r != rank) queue.write_flag64(&node_->notices(r, slot_, lane, rank), stamp(generation_, n));
  };
  const auto await = [&](int peer, std::uint32_t n) {
    queue.wait_flag64(&node_->notices(rank, slot_, lane, peer), stamp(generation_, n));
  };
  submit_peer_lane(*schedule_, lane, size, notify, [&](const Step& step) { submit(step, queue); }, await);
}

void PeerExecution::submit(const Step& step, DeviceQueue& queue) {
  ReduceArgs args = element_args(step, binding_);
  args.dst = address(step.dst);
  sources_.clear();
  for (std::uint32_t k = 0; k < step.source_count; ++k)
    sources_.push_back(address(schedule_->source(step, k)));
  args.sources = sources_.data();
  args.source_count = static_cast<int>(sources_.size());
  args.count = static_cast<std::size_t>(step.dst.count);
  if (is_reduction(step, args))
    queue.reduce(args);
  else if (args.dst != sources_[0])
    queue.copy(args.dst, sources_[0], byte_count(step.dst, binding_));
}

bool PeerExecution::advance() {
  if (done_) return true;
  compare_calls();
  if (flags_.end()->load(std::memory_order_acquire) < flags_.base + 1) return false;
  // A rank that gave up has let its device go on with whatever was there, and told so before.
  for (int r = 0; r < node_->size(); ++r)
    if (r != node_->rank() && node_->failed(node_->rank(), r).load(std::memory_order_acquire))
      fail(ErrorCode::Remote, "rank ", r, " has given up this operation or an earlier one of the group");
  done_ = true;
  ++rounds_done_;
  return true;
}

// As far as they can still be seen: a host that is far ahead has written what it calls next in this slot.
void PeerExecution::compare_calls() {
  for (int r = 0; r < node_->size(); ++r) {
    if (r == node_->rank() || compared_[static_cast<std::size_t>(r)]) continue;
    const std::uint64_t called = node_->called(node_->rank(), slot_, r).load(std::memory_order_acquire);
    if (called >> 32 < generation_) continue;
    if (called >> 32 == generation_ && called != stamp(generation_, call_))
      fail(ErrorCode::Remote, "rank ", r,
           " is in another call than this rank. Expected equal calls in the same order on all ranks of the "
           "group");
    compared_[static_cast<std::size_t>(r)] = true;
  }
}

std::vector<int> PeerExecution::pending_peers() const {
  std::vector<int> absent, busy;
  for (int r = 0; r < node_->size(); ++r) {
    if (r == node_->rank()) continue;
    if (node_->called(node_->rank(), slot_, r).load(std::memory_order_acquire) >> 32 < generation_)
      absent.push_back(r);
    else if (node_->ended(node_->rank(), slot_, r).load(std::memory_order_acquire) < generation_)
      busy.push_back(r);
  }
  return absent.empty() ? busy : absent;
}

// Also before launch(), which may follow. A device of another rank may yet overwrite one of these flags with
// the lower value that it has come to: so the caller tries again until the device is through.
bool PeerExecution::release_device() noexcept {
  const int rank = node_->rank();
  for (int r = 0; r < node_->size(); ++r)  // first: who sees what this device does then sees this, too
    if (r != rank) node_->failed(r, rank).store(1, std::memory_order_release);
  for (int r = 0; r < node_->size(); ++r) {
    if (r == rank) continue;
    raise(node_->ended(rank, slot_, r), generation_ - 1);
    for (int lane = 0; lane < static_cast<int>(schedule_->lanes.size()); ++lane)
      raise(node_->notices(rank, slot_, lane, r), stamp(generation_, UINT32_MAX));
  }
  return flags_.end()->load(std::memory_order_acquire) >= flags_.base + 1;
}

}  // namespace mpigdr
