#include "execution/host/shared_steps.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/error.hpp"
#include "execution/local_step.hpp"

namespace mpi_gdr {
namespace {

// Bytes read from all others at a time: they stay in the second-level cache until they are reduced.
constexpr std::size_t kBounceBytes = 512 * 1024;
constexpr std::size_t kLeastPiece = 4096;

std::uint64_t stamp(std::uint64_t generation, std::uint64_t notices) { return (generation << 32) | notices; }

}  // namespace

SharedSteps::SharedSteps(const Schedule& schedule, const Binding& binding, ScratchPool& pool,
                         std::pmr::memory_resource& memory)
    : schedule_(&schedule),
      binding_(binding),
      node_(*binding.node),
      channel_(static_cast<int>(binding.channel)),
      use_(binding.slot_use),
      number_(static_cast<int>(use_ % shm::kSlots)),
      generation_(generation_of(use_)),
      pool_(pool),
      lanes_(schedule.lanes.size()),
      ranks_(node_.members().size()),
      counts_(lanes_ + lanes_ * ranks_ + ranks_, &memory),
      addresses_(&memory),
      sources_(&memory) {
  set_agrees(node_.rank());
  static_assert(kMaxLanes <= shm::kSlotLanes);
  MPI_GDR_CHECK(channel_ < shm::kSlotChannels);
  for (const Schedule* s = &schedule; s; s = s->staged.get())
    MPI_GDR_CHECK(s->staging_count * item_size(binding.dtype) <= shm::kStagingBytes &&
                  s->lanes.size() <= lanes_);
}

shm::Slot& SharedSteps::slot(int rank) const { return node_.slot(rank, channel_, number_); }

const shm::Slot& SharedSteps::use_slot(int rank, std::uint64_t use) const {
  return node_.slot(rank, channel_, static_cast<int>(use % shm::kSlots));
}

bool SharedSteps::missing(int rank, const std::atomic<std::uint64_t>& flag, std::uint64_t seen,
                          std::atomic<std::uint32_t>& sleepers) {
  missing_ = rank;
  bell_ = {&flag, seen, &sleepers};
  return false;
}

void SharedSteps::raise(std::atomic<std::uint64_t>& flag, std::uint64_t value) {
  flag.store(value, std::memory_order_release);
  Doorbell::ring(flag, slot(node_.rank()).sleepers);
}

bool SharedSteps::begin() {
  if (begun_) return true;
  if (!notified_) {
    if (!slot_is_free()) return false;
    shm::Slot& own = slot(node_.rank());
    own.input = reinterpret_cast<std::uintptr_t>(binding_.input);
    own.output = reinterpret_cast<std::uintptr_t>(binding_.output);
    node_.record(node_.rank(), channel_, number_, generation_) = binding_.call;
    own.history[generation_ % 2] = binding_.call.history;
    if (!binding_.send_counts.empty()) publish_counts();
    const bool chooses = schedule_->staged || chooses_by_reach();
    own.begun.store(generation_ << shm::kReachBits | choose_or_offer(), std::memory_order_release);
    if (chooses) Doorbell::ring(own.begun, own.sleepers);  // other ranks sleep on this flag only in agree()
    notified_ = true;
  }
  if (schedule_->staged && !agree()) return false;
  missing_ = -1;
  begun_ = true;
  return true;
}

bool SharedSteps::slot_is_free() {
  for (std::size_t place = 0; place < ranks_; ++place) {
    std::uint64_t& seen = node_.seen(channel_).ended[place];
    if (seen + shm::kSlots > use_) continue;
    const int rank = node_.members()[place];
    shm::SlotUses& uses = node_.uses(rank, channel_);
    seen = uses.ended.load(std::memory_order_acquire);
    if (seen + shm::kSlots <= use_) return missing(rank, uses.ended, seen, uses.sleepers);
    compare_ended(rank, seen);
  }
  return true;
}

// Whether all memory of this rank that others may access is in group memory; null pointers count as such.
bool SharedSteps::is_open() const {
  const bool root = binding_.call.root == node_.rank();
  const auto open = [&](const void* memory) { return !memory || node_.owns(memory); };
  switch (binding_.call.collective) {
    case Collective::AllReduce:
    case Collective::AllToAll:
      return open(binding_.input) && open(binding_.output);
    case Collective::Broadcast:
    case Collective::AllGather:
      return open(binding_.output);
    case Collective::Reduce:
      return open(binding_.input) && (!root || open(binding_.output));
    case Collective::Gather:
      return open(root ? binding_.output : binding_.input);
    case Collective::Scatter:
      return open(root ? binding_.input : binding_.output);
    default:
      return open(binding_.input);
  }
}

// An all_to_all cannot choose by measured times: it has no size that is equal on all ranks.
bool SharedSteps::chooses_by_reach() const { return binding_.call.collective == Collective::AllToAll; }

std::uint64_t SharedSteps::choose_or_offer() {
  if (!schedule_->staged) return chooses_by_reach() ? shm::kMappedBit | shm::kCopiedBit : 0;
  if (is_open()) return shm::kMappedBit | shm::kCopiedBit;
  const RivalChoices::Call& rivals = binding_.rivals;
  const Collective collective = binding_.call.collective;
  const bool can_copy = node_.reach() == Reach::All;
  // As this rank's memory is not mapped, all ranks choose as for ordinary memory, whatever the others' bits.
  const bool decided =
      !rivals.choices || (rivals.choices->is_turn(channel_, rivals.number) &&
                          (!can_copy || rivals.choices->runs_staged(channel_, rivals, collective)));
  if (decided && !chooses_by_reach()) {
    if (rivals.choices) choice_ = rivals.choices->choose(channel_, rivals, collective, 1, false, !can_copy);
    schedule_ = schedule_->staged.get();
    return can_copy ? shm::kCopiedBit : 0;
  }
  // A system call of 2 us, made only where there is a choice.
  const bool copied = can_copy && shm::NodeMemory::is_copied(binding_.input, binding_.output);
  return copied ? shm::kCopiedBit : 0;
}

// All ranks reach the same result: from the bits of all ranks, and by the decisions of one rank.
bool SharedSteps::agree() {
  const RivalChoices::Call& rivals = binding_.rivals;
  bool all = true;
  std::uint64_t reached =
      (node_.arenas_mapped() ? shm::kMappedBit : 0) | (node_.reach() == Reach::All ? shm::kCopiedBit : 0);
  for (const int r : node_.members()) {
    const auto& flag = slot(r).begun;
    const std::uint64_t begun = flag.load(std::memory_order_acquire);
    if (begun >> shm::kReachBits < generation_) {  // not begun; goes on to compare the others
      if (all) all = missing(r, flag, begun, slot(r).sleepers);
      continue;
    }
    if (!agrees(r)) compare_calls(r);
    reached &= begun;
  }
  if (!all) return false;
  const bool mapped = reached & shm::kMappedBit;
  int rival = mapped || (reached && chooses_by_reach()) ? 0 : 1;
  if (rivals.choices) {
    missing_ = -1;  // no rank is missing if an earlier call has to begin first
    if (!rivals.choices->is_turn(channel_, rivals.number)) return false;
    const bool fixed = reached == 0;
    choice_ = rivals.choices->choose(channel_, rivals, binding_.call.collective, rival, mapped, fixed);
    rival = choice_.rival;
  }
  if (rival == 1) schedule_ = schedule_->staged.get();
  return true;
}

void SharedSteps::signal(int lane) {
  raise(slot(node_.rank()).notices[lane], stamp(generation_, ++notices(lane)));
}

bool SharedSteps::awaited(int lane, const Step& step) {
  std::uint64_t& consumed = this->consumed(lane, step.peer);
  shm::Slot& theirs = slot(step.peer);
  const auto& flag = theirs.notices[static_cast<std::size_t>(lane)];
  const std::uint64_t notices = flag.load(std::memory_order_acquire);
  const bool here = notices >= stamp(generation_, consumed + 1);
  // A rank in another call may never come to a Signal.
  if (!agrees(step.peer) &&
      (here || theirs.begun.load(std::memory_order_acquire) >> shm::kReachBits >= generation_))
    compare_calls(step.peer);
  if (!here) return missing(step.peer, flag, notices, theirs.sleepers);
  ++consumed;
  missing_ = -1;
  return true;
}

// Compares the last use that both ranks have ended: a rank that waits for no other compares calls only here,
// once in kSlots uses. The peer's records stay until this rank has ended the use that it now begins.
void SharedSteps::compare_ended(int peer, std::uint64_t ended) const {
  const std::uint64_t own = node_.uses(node_.rank(), channel_).ended.load(std::memory_order_relaxed);
  if (peer != node_.rank() && std::min(own, ended) > 0) compare_use(peer, std::min(own, ended) - 1);
}

void SharedSteps::compare_use(int peer, std::uint64_t use) const {
  const auto history = [&](int rank) { return use_slot(rank, use).history[generation_of(use) % 2]; };
  if (history(peer) == history(node_.rank())) return;
  // Names the first call that differs and is still recorded.
  const auto call = [&](int rank, std::uint64_t at) -> const CallRecord* {
    const shm::Slot& slot = use_slot(rank, at);
    const bool begun = slot.begun.load(std::memory_order_acquire) >> shm::kReachBits >= generation_of(at);
    return begun ? &node_.record(rank, channel_, static_cast<int>(at % shm::kSlots), generation_of(at))
                 : nullptr;
  };
  for (std::uint64_t at = use_ - std::min<std::uint64_t>(use_, shm::kSlots); at <= use; ++at) {
    const CallRecord* const theirs = call(peer, at);
    const CallRecord* const ours = call(node_.rank(), at);
    if (theirs && ours && (at == use || theirs->history != ours->history))
      fail(ErrorCode::Mismatch, difference(peer, *theirs, *ours));
  }
}

void SharedSteps::compare_calls(int peer) {
  compare_use(peer, use_);
  if (!binding_.send_counts.empty()) compare_counts(peer);
  set_agrees(peer);
}

// At the start of this rank's Staging, where all_to_all_staged.cpp leaves room.
void SharedSteps::publish_counts() {
  std::byte* const table = node_.staging(node_.rank(), channel_, number_);
  const std::size_t bytes = binding_.send_counts.size() * sizeof(std::uint64_t);
  std::memcpy(table, binding_.send_counts.data(), bytes);
  std::memcpy(table + bytes, binding_.recv_counts.data(), bytes);
}

std::uint64_t SharedSteps::published(int rank, std::size_t i) const {
  std::uint64_t count = 0;
  std::memcpy(&count, node_.staging(rank, channel_, number_) + i * sizeof count, sizeof count);
  return count;
}

std::uint64_t SharedSteps::block_start(int rank, Buffer buffer) const {
  const std::size_t first = buffer == Buffer::Input ? 0 : binding_.send_counts.size();
  std::uint64_t start = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(node_.rank()); ++i)
    start += published(rank, first + i);
  return start;
}

void SharedSteps::compare_counts(int peer) {
  const auto here = static_cast<std::size_t>(node_.rank()), there = static_cast<std::size_t>(peer);
  const std::uint64_t sends = published(peer, here),
                      expects = published(peer, binding_.send_counts.size() + here);
  constexpr const char* kReason = ": the ranks called different collectives, or with different sizes";
  if (sends != binding_.recv_counts[there])
    fail(ErrorCode::Mismatch, "rank ", peer, " sends ", sends, " elements to this rank, where ",
         binding_.recv_counts[there], " were expected", kReason);
  if (expects != binding_.send_counts[there])
    fail(ErrorCode::Mismatch, "rank ", peer, " expects ", expects, " elements from this rank, which sends ",
         binding_.send_counts[there], kReason);
}

void SharedSteps::end() {
  if (binding_.rivals.choices) binding_.rivals.choices->end(channel_, binding_.rivals, choice_);
  shm::SlotUses& own = node_.uses(node_.rank(), channel_);
  std::uint32_t& ended = node_.seen(channel_).out_of_turn;
  const std::uint64_t before = own.ended.load(std::memory_order_relaxed);
  static_assert(shm::kSlots <= 32);
  MPI_GDR_CHECK(use_ - before < shm::kSlots);  // slot_is_free()
  ended |= std::uint32_t{1} << (use_ - before);
  const int more = std::countr_one(ended);
  if (more == 0) return;  // an earlier use is running
  ended >>= more;
  own.ended.store(before + static_cast<std::uint64_t>(more), std::memory_order_release);
  Doorbell::ring(own.ended, own.sleepers);
}

void SharedSteps::pending_peers(std::vector<int>& peers) const {
  if (missing_ >= 0 && missing_ != node_.rank()) peers.push_back(missing_);
}

bool SharedSteps::doorbell(Doorbell& bell) const {
  if (missing_ < 0 || missing_ == node_.rank()) return false;
  bell = bell_;
  return true;
}

SharedSteps::Address SharedSteps::resolve(const Slice& slice) const {
  const std::size_t offset = static_cast<std::size_t>(slice.offset) * item_size(binding_.dtype);
  const int owner = slice.owner < 0 ? node_.rank() : slice.owner;
  MPI_GDR_CHECK(agrees(owner));
  Address address;
  address.owner = owner;
  if (slice.buffer == Buffer::Staging) {
    address.here = node_.staging(owner, channel_, number_) + offset;
  } else if (owner == node_.rank()) {
    address.here = const_cast<std::byte*>(source_address(slice, binding_));
  } else {
    const shm::Slot& theirs = slot(owner);
    address.there = (slice.buffer == Buffer::Input ? theirs.input : theirs.output) + offset;
    if (!binding_.send_counts.empty())
      address.there += block_start(owner, slice.buffer) * item_size(binding_.dtype);
    address.here = node_.mapped(owner, address.there, byte_count(slice, binding_));
  }
  return address;
}

void SharedSteps::copy(const Address& to, const Address& from, std::size_t bytes) const {
  if (to.here && from.here) {
    if (to.here != from.here) std::memcpy(to.here, from.here, bytes);
  } else if (to.here) {
    node_.read(from.owner, to.here, from.there, bytes);
  } else {
    MPI_GDR_CHECK(from.here != nullptr);
    node_.write(to.owner, to.there, from.here, bytes);
  }
}

void SharedSteps::run(const Step& step) {
  const ReduceArgs args = element_args(step, binding_);
  if (is_reduction(step, args))
    reduce(step, args);
  else
    copy(resolve(step.dst), resolve(schedule_->source(step)), byte_count(step.dst, binding_));
}

void SharedSteps::reduce(const Step& step, ReduceArgs args) {
  const std::size_t item = item_size(binding_.dtype);
  const Address dst = resolve(step.dst);
  addresses_.clear();
  addresses_.reserve(step.source_count);
  std::size_t apart = dst.here ? 0 : 1;  // number of slices that pass through the bounce buffer
  for (std::uint32_t k = 0; k < step.source_count; ++k) {
    addresses_.push_back(resolve(schedule_->source(step, k)));
    apart += addresses_.back().here ? 0 : 1;
  }
  const std::size_t count = static_cast<std::size_t>(step.dst.count);
  std::size_t each = count;
  if (apart > 0) {
    each = std::min(count, std::max(kBounceBytes / apart, kLeastPiece) / item);
    if (!bounce_.get()) bounce_ = pool_.take(std::max(kBounceBytes, kLeastPiece * (ranks_ + 1)));
  }
  sources_.resize(addresses_.size());
  args.sources = sources_.data();
  args.source_count = static_cast<int>(sources_.size());
  for (std::size_t at = 0; at < count; at += each) {
    args.count = std::min(each, count - at);
    const std::size_t bytes = args.count * item, offset = at * item;
    auto* room = static_cast<std::byte*>(bounce_.get());
    for (std::size_t k = 0; k < addresses_.size(); ++k) {
      if (addresses_[k].here) {
        sources_[k] = addresses_[k].here + offset;
        continue;
      }
      node_.read(addresses_[k].owner, room, addresses_[k].there + offset, bytes);
      sources_[k] = room;
      room += each * item;
    }
    args.dst = dst.here ? dst.here + offset : room;
    host::reduce(args);
    if (!dst.here) node_.write(dst.owner, dst.there + offset, room, bytes);
  }
}

}  // namespace mpi_gdr
