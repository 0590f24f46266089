// Device memory and flags that a group's ranks on one node share.
//
// Each rank has staging memory on its device, which the devices of the others map, and a segment of host
// memory (common/memory_file.hpp) with flags that its own device waits for and the devices of the others
// write: so a rank can unblock its device when a peer is gone. An operation uses one slot of both, the same
// on all ranks. The ranks also map each other's group memory (device_arena.hpp).
//
// A flag has one writer and only grows: its value is generation << 32 | number, so that a slot is reused
// without a reset. Graphs have a slot of their own, whose generation is the number of the replay, counted by
// the device.
//
// Threads: constructor, attach(), detach(), refresh() and destructor may wait for the device: not while an
// operation is being launched. The caller serialises these, ticket(), take_back(), find() and
// any_group_memory(). Everything else is thread-safe.
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
inline constexpr int kGraphSlot = kSlots;  // behind the others, of the same size

// Lets the others map this rank's memory; plain bytes, for an all_gather.
struct Ticket {
  std::int64_t pid = 0;
  std::int32_t file = -1;  // of the flags; -1: this rank shares nothing
  std::uint32_t handle_bytes = 0;
  std::uint64_t nonce = 0;
  std::array<char, 192> handle{};   // of the staging memory
  std::array<char, 64> identity{};  // of the device
};

class DeviceNode {
 public:
  // `members`: the group's rank of each rank here; empty: the same. Throws System, NoMemory.
  DeviceNode(Device& device, int rank, int size, std::vector<int> members = {});
  // Leaks memory that others may still map, after up to 2 s.
  ~DeviceNode();
  DeviceNode(const DeviceNode&) = delete;
  DeviceNode& operator=(const DeviceNode&) = delete;

  // Publishes group memory, too.
  Ticket ticket();
  // Maps the others' memory, in rank order, and tries it. False, with the reason, if memory cannot be mapped
  // or reads back other bytes, as in virtual machines without peer access; then no rank may use it. Group
  // memory that cannot be mapped is not an error.
  bool attach(const std::vector<Ticket>& tickets, std::string& why);
  // Unmaps the others' memory, which no rank may use. False if the device refuses.
  bool detach() noexcept;
  // After detach() of all ranks that had a ticket: the destructor frees the memory.
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
  // By the host of `writer`, when it issues an operation: generation << 32 | hash of the call.
  Flag& called(int owner, int slot, int writer) const { return flag(owner, slot, 1, writer); }
  // By the host of `writer`, before it releases its device after a failure: 1 more than the first use of the
  // slots whose results are invalid, see concerns().
  Flag& failed(int owner, int writer) const { return flag(owner, 0, 3, writer); }
  // The same when it could not launch all of an operation: its device will not raise the flags of the rest.
  Flag& refused(int owner, int writer) const { return flag(owner, 0, 4, writer); }
  // Set `failed`, or `refused`, on all ranks, from the first use that has not ended well. Any thread.
  void publish_failed() const noexcept { publish(3); }
  void publish_refused() const noexcept { publish(4); }
  // This use and those before it have ended well. Progress role.
  void note_end(std::uint64_t use) const noexcept {
    if (use >= ended_well_.load(std::memory_order_relaxed))
      ended_well_.store(use + 1, std::memory_order_release);
  }
  // Whether a word of failed() or refused() includes use `use`.
  static bool concerns(const Flag& word, std::uint64_t use) {
    const std::uint64_t from = word.load(std::memory_order_acquire);
    return from != 0 && use + 1 >= from;
  }
  // Of the graph slot.
  Replays replays() const { return {&counts_[0].value, &counts_[1].value, &released()}; }
  // From now on no replay waits for others or notifies them, and results are invalid. Any thread.
  void release_replays() const noexcept { released().store(1, std::memory_order_release); }
  const Device& device() const { return device_; }
  // Whether other ranks are on this rank's device and take turns there. Valid after attach().
  bool takes_turns() const { return crowded_ && device_.takes_turns(); }

  // Before use `use` of the slots: publishes this rank's new group memory and maps the others'. A few loads
  // if there is none; else it may wait for the device. Issuing thread.
  void refresh(std::uint64_t use) const { group_memory_->refresh(use); }
  // The location of group memory of this rank's device, if all ranks map it in use `use`. Issuing thread.
  std::optional<DeviceArena::Location> find(const void* memory, std::uint64_t use) const {
    return group_memory_->find(memory, use);
  }
  // Whether find() can succeed on any rank. Issuing thread.
  bool any_group_memory() const { return group_memory_->any(); }
  // For this rank's device, kMaxSegments addresses of segments for each rank, in rank order; 0: not mapped.
  // Not 0 for any segment that find() returns on another rank.
  const std::uint64_t* bases() const { return group_memory_->bases(); }
  // In this rank's device memory: ResolveArgs::table of the slot.
  std::uint64_t* table(int slot) const {
    return reinterpret_cast<std::uint64_t*>(counts_ + 2) + slot * kTableWords;
  }
  // In `owner`'s segment, by its device: shown_word() of its input (kind 0) and output (kind 1).
  Flag& shown(int owner, int slot, int kind) const { return group_memory_->shown(owner, slot, kind); }

 private:
  // By the host of `writer`, when it has unmapped `owner`'s memory.
  Flag& detached(int owner, int writer) const { return flag(owner, 0, 5, writer); }

  void publish(int kind) const noexcept {
    const std::uint64_t from = ended_well_.load(std::memory_order_acquire) + 1;
    for (int r = 0; r < size_; ++r) {
      std::uint64_t none = 0;  // the first value covers more uses
      flag(r, 0, kind, rank_).compare_exchange_strong(none, from, std::memory_order_acq_rel);
    }
  }

  // By this rank's host for its device.
  Flag& released() const { return flag(rank_, kGraphSlot, 1, rank_); }

  Flag& flag(int owner, int slot, int kind, int writer) const {
    const auto line = (static_cast<std::size_t>(slot) * kKinds + static_cast<std::size_t>(kind)) *
                          static_cast<std::size_t>(size_) +
                      static_cast<std::size_t>(writer);
    return flags_[static_cast<std::size_t>(owner)][line].value;
  }
  bool arrives(int owner, std::uint64_t nonce) const;

  static constexpr int kKinds = 6;
  static constexpr int kTableWords = 2 * kMostResolved;
  std::size_t flag_bytes() const {
    return std::size_t{(kGraphSlot + 1)} * kKinds * static_cast<std::size_t>(size_) * sizeof(Line);
  }
  // Whether the flag of each peer reaches its value in time; `flag(r)` returns both.
  template <typename F>
  bool all_reach(F flag, std::chrono::steady_clock::time_point deadline) const;

  Device& device_;
  const int rank_, size_;
  const std::vector<int> members_;
  const std::size_t segment_bytes_;  // a page, flags, group memory
  const std::uint64_t nonce_;
  int file_ = -1;
  bool shared_ = false;              // others may map this rank's memory
  bool crowded_ = false;             // other ranks are on the same device
  std::vector<void*> segments_;      // by rank, a page with the nonce before the flags; null: not mapped
  std::vector<bool> registered_;     // with the device
  std::vector<Line*> flags_;         // by rank
  std::vector<std::byte*> staging_;  // by rank, null: not mapped
  const std::unique_ptr<DeviceSegments> group_memory_;
  Line* counts_ = nullptr;  // in device memory, behind the staging memory; the tables follow
  mutable std::atomic<std::uint64_t> ended_well_{0};  // uses of the slots
};

}  // namespace mpi_gdr::ipc
