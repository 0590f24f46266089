// Memory of devices, and flags, that the ranks of a group share when all of them are on one node.
//
// Each rank has staging memory on its device, which the devices of the others map, and a segment of host
// memory (common/memory_file.hpp) with flags that its own device waits for and the devices of the others
// write: so a rank can unblock its own device when another one is gone. An operation uses one slot of both,
// by its number, equal on all ranks. The ranks also map each other's group memory (device_arena.hpp).
//
// Flags have one writer each and only grow; generation << 32 | number, so that a slot is used again without
// being reset. What is recorded into graphs has a slot of its own, whose generation is the number of the
// replay, counted by the device.
//
// Threads: constructor, attach(), detach(), refresh() and destructor may wait for the device: not while an
// operation is being launched. These, ticket() and take_back() are serialised by the caller, find() comes
// behind them. Everything else is constant.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/staging.hpp"
#include "device/resolved.hpp"
#include "transport/ipc/device_segments.hpp"

namespace mpi_gdr::ipc {

inline constexpr std::size_t kStagingBytes = kDeviceStagingBytes;  // per slot
inline constexpr int kSlots = 2;
inline constexpr int kGraphSlot = kSlots;  // behind them, of the same size

// What the others need to find this rank's; plain bytes, for an all_gather.
struct Ticket {
  std::int64_t pid = 0;
  std::int32_t file = -1;  // of the flags; -1: this rank has nothing to share
  std::uint32_t handle_bytes = 0;
  std::uint64_t nonce = 0;
  std::array<char, 192> handle{};   // of the staging memory
  std::array<char, 64> identity{};  // of the device
};

class DeviceNode {
 public:
  // `members`: what the ranks of the node are called in their group; empty: as here. Throws System, NoMemory.
  DeviceNode(Device& device, int rank, int size, std::vector<int> members = {});
  // Memory that others may have mapped still is left behind. Takes up to 2 s where others are late.
  ~DeviceNode();
  DeviceNode(const DeviceNode&) = delete;
  DeviceNode& operator=(const DeviceNode&) = delete;

  // Tells of the group memory that there is as well.
  Ticket ticket();
  // Maps what the others have, in rank order, and tries it. False, and why, if something cannot be mapped, or
  // if other bytes come out than went in, as in virtual machines whose devices do not reach each other; then
  // no rank may use it. Group memory that cannot be mapped is not an error.
  bool attach(const std::vector<Ticket>& tickets, std::string& why);
  // Where no rank may use it: unmaps what of the others has been mapped. False if the device does not let it.
  bool detach() noexcept;
  // All ranks that had a ticket have done so: memory is this rank's alone again.
  void take_back() { shared_ = false; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  template <typename F>
  void each_peer(const F& f) const {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) f(r);
  }
  int member(int rank) const { return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)]; }
  std::byte* staging(int rank, int slot) const {
    return staging_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(slot) * kStagingBytes;
  }
  // Flags in `owner`'s segment, written by `writer`.
  Flag& notices(int owner, int slot, int writer) const { return flag(owner, slot, 2, writer); }
  Flag& ended(int owner, int slot, int writer) const { return flag(owner, slot, 0, writer); }
  // By the host of `writer`, when it issues an operation: generation << 32 | what tells the call from others.
  Flag& called(int owner, int slot, int writer) const { return flag(owner, slot, 1, writer); }
  // By the host of `writer`, before it unblocks its device from operations that failed: from which use of the
  // slots on results are invalid, see concerns().
  Flag& failed(int owner, int writer) const { return flag(owner, 0, 3, writer); }
  // The same when it could not launch all of an operation: its device will never do what others wait for.
  Flag& refused(int owner, int writer) const { return flag(owner, 0, 4, writer); }
  // That this rank has failed, or could not launch; not what has ended well by now. Any thread.
  void tell_failed() const noexcept { tell(3); }
  void tell_refused() const noexcept { tell(4); }
  // Uses of the slots end in their order: this one and those before it have ended well. Progress role.
  void note_end(std::uint64_t use) const noexcept {
    if (use >= ended_well_.load(std::memory_order_relaxed))
      ended_well_.store(use + 1, std::memory_order_release);
  }
  // Whether one of these two words, as its owner finds it, is about use `use`.
  static bool concerns(const Flag& word, std::uint64_t use) {
    const std::uint64_t from = word.load(std::memory_order_acquire);  // 1 more than the first such use
    return from != 0 && use + 1 >= from;
  }
  // Of the graph slot. Its notices and `ended` are generation << 32 | number, the latter with 0.
  Replays replays() const { return {&counts_[0].value, &counts_[1].value, &released()}; }
  // No replay waits for others, or notifies them, from now on: its results are invalid. Any thread.
  void release_replays() const noexcept { released().store(1, std::memory_order_release); }
  const Device& device() const { return device_; }
  // Several ranks are on this rank's device, where processes take turns. Known once attached.
  bool takes_turns() const { return crowded_ && device_.takes_turns(); }

  // Before use `use` of the slots: publishes group memory that this rank has got since, and maps the others'.
  // A few loads where nothing is new; may wait for the device where something is. Issuing thread.
  void refresh(std::uint64_t use) const { group_memory_->refresh(use); }
  // Where group memory of this rank's device is, if all ranks have mapped it by use `use`. Issuing thread.
  std::optional<DeviceArena::Location> find(const void* memory, std::uint64_t use) const {
    return group_memory_->find(memory, use);
  }
  // Whether find() can succeed on any rank. Issuing thread.
  bool any_group_memory() const { return group_memory_->any(); }
  // kMaxSegments words for each rank, in rank order, for this rank's device: where it sees that rank's
  // segment, 0 if nowhere. It has an address for whatever find() returns on another rank.
  const std::uint64_t* bases() const { return group_memory_->bases(); }
  // Of this rank's device, for addresses of others' buffers (ResolveArgs::table), by slot.
  std::uint64_t* table(int slot) const {
    return reinterpret_cast<std::uint64_t*>(counts_ + 2) + slot * kTableWords;
  }
  // In `owner`'s segment, written by its device: shown_word() of its input (kind 0) and output (kind 1).
  Flag& shown(int owner, int slot, int kind) const { return group_memory_->shown(owner, slot, kind); }

 private:
  // By the host of `writer`, when it has unmapped what `owner` shares.
  Flag& detached(int owner, int writer) const { return flag(owner, 0, 5, writer); }

  void tell(int kind) const noexcept {
    const std::uint64_t from = ended_well_.load(std::memory_order_acquire) + 1;
    for (int r = 0; r < size_; ++r) {
      std::uint64_t none = 0;  // the first value covers more uses
      flag(r, 0, kind, rank_).compare_exchange_strong(none, from, std::memory_order_acq_rel);
    }
  }

  // By this rank's host, for its own device.
  Flag& released() const { return flag(rank_, kGraphSlot, 1, rank_); }

  Flag& flag(int owner, int slot, int kind, int writer) const {
    const auto line = (static_cast<std::size_t>(slot) * kKinds + static_cast<std::size_t>(kind)) *
                          static_cast<std::size_t>(size_) +
                      static_cast<std::size_t>(writer);
    return flags_[static_cast<std::size_t>(owner)][line].value;
  }
  // Of `owner`'s device, behind its tables: the owner's nonce, then a word for each rank to try.
  std::uint64_t* trial(int owner, int word) const {
    return reinterpret_cast<std::uint64_t*>(staging(owner, kGraphSlot + 1)) + 2 * sizeof(Line) / 8 +
           kSlots * kTableWords + word;
  }
  bool arrives(int owner, std::uint64_t nonce) const;

  static constexpr int kKinds = 6;
  static constexpr int kTableWords = 2 * kMostResolved;
  std::size_t flag_bytes() const {
    return std::size_t{(kGraphSlot + 1)} * kKinds * static_cast<std::size_t>(size_) * sizeof(Line);
  }
  // Whether all of the others' `flag`s come to `least` in time.
  template <typename F>
  bool all_reach(F flag, std::chrono::steady_clock::time_point deadline) const;

  Device& device_;
  const int rank_, size_;
  const std::vector<int> members_;
  const std::size_t segment_bytes_;  // a page, flags, group memory
  const std::uint64_t nonce_;
  int file_ = -1;
  bool shared_ = false;              // others may have mapped this rank's memory, or will
  bool crowded_ = false;             // others are on the same device
  std::vector<void*> segments_;      // by rank, a page with the nonce before the flags; null: not mapped
  std::vector<bool> registered_;     // with the device
  std::vector<Line*> flags_;         // by rank
  std::vector<std::byte*> staging_;  // by rank, null: not mapped
  const std::unique_ptr<DeviceSegments> group_memory_;
  Line* counts_ = nullptr;  // of the device, behind its staging memory, and then the tables
  mutable std::atomic<std::uint64_t> ended_well_{0};  // uses of the slots
};

}  // namespace mpi_gdr::ipc
