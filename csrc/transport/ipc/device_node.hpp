// Device memory that a group's ranks on one node share, with its flags.
//
// Each rank has staging memory on its device, which the devices of the others map. An operation uses the same
// slot of it as of the flags. The flags are written by the devices of the others, and waited for by the own
// one: in host memory, so that a rank can unblock its device when a peer is gone. The ranks also map each
// other's group memory (device_arena.hpp).
//
// Threads: constructor, attach(), detach(), refresh() and destructor may wait for the device: not while an
// operation is being launched. The caller serialises these, ticket(), reclaim(), find() and
// any_group_memory(). Everything else is thread-safe.
#pragma once

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
#include "transport/ipc/node_flags.hpp"

namespace mpi_gdr::ipc {

inline constexpr std::size_t kStagingBytes = kDeviceStagingBytes;  // per slot

class DeviceNode : public NodeFlags {
 public:
  // Throws System, NoMemory.
  DeviceNode(Device& device, int rank, int size, std::vector<int> members = {});
  // Leaks memory that others may still map, after up to 2 s.
  ~DeviceNode();

  // Publishes group memory, too.
  Ticket ticket();
  // Maps the others' memory, in rank order, and tries it. False, with the reason, if memory cannot be mapped
  // or reads back other bytes, as in virtual machines without peer access; then no rank may use it. Group
  // memory that cannot be mapped is not an error.
  bool attach(const std::vector<Ticket>& tickets, std::string& why);
  // Unmaps the others' memory, which no rank may use. False if the device refuses.
  bool detach() noexcept;
  // After detach() of all ranks that had a ticket: the destructor frees the memory.
  void reclaim() { shared_ = false; }

  std::byte* staging(int rank, int slot) const {
    return staging_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(slot) * kStagingBytes;
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
  bool arrives(int owner, std::uint64_t nonce) const;

  static constexpr int kTableWords = 2 * kMostResolved;
  // Whether the flag of each peer reaches its value in time; `flag(r)` returns both.
  template <typename F>
  bool all_reach(F flag, std::chrono::steady_clock::time_point deadline) const;

  Device& device_;
  bool shared_ = false;              // others may map this rank's memory
  bool crowded_ = false;             // other ranks are on the same device
  std::vector<bool> registered_;     // segments, with the device
  std::vector<bool> attached_;       // ranks
  std::vector<std::byte*> staging_;  // by rank, null: not mapped
  const std::unique_ptr<DeviceSegments> group_memory_;
  Line* counts_ = nullptr;  // in device memory, behind the staging memory; the tables follow
};

}  // namespace mpi_gdr::ipc
