// Device memory that a group's ranks on one node share, with its flags.
//
// Each rank has staging memory on its device, which the devices of the others map. An operation uses the same
// slot of staging memory and of flags. Other ranks' devices write a rank's flags, and its device waits for
// them. Flags are in host memory, so that a rank can unblock its device when a peer is gone. The ranks also
// map each other's group memory (device_arena.hpp).
//
// Threads: constructor, attach(), detach(), group_memory() and destructor may wait for the device: not while
// an operation is being launched. The caller serialises these, publish() and reclaim(). Everything else is
// thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
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
  // The size of an area, in whole pages.
  static constexpr std::size_t bytes(int size) {
    return NodeFlags::bytes(size) + sizeof(DeviceSegments::Part);
  }
  // Parameters as NodeFlags. Throws System, NoMemory.
  DeviceNode(Device& device, int rank, Areas areas, std::vector<int> members = {});
  // Leaks memory that others may still map, after up to 2 s.
  ~DeviceNode();

  // Offers this rank's memory to the others. Throws System.
  void publish();
  // After publish() of all ranks: maps the others' memory, in rank order, and tries it. False, with the
  // reason, if memory cannot be mapped or reads back other bytes, as in virtual machines without peer access;
  // then no rank may use it. Group memory that cannot be mapped is not an error.
  bool attach(std::string& why);
  // Unmaps the others' memory, which no rank may use. False if the device refuses.
  bool detach() noexcept;
  // After detach() of all ranks: the destructor frees the memory.
  void reclaim() { shared_ = false; }

  std::byte* staging(int rank, int slot) const {
    return staging_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(slot) * kStagingBytes;
  }
  // The counters and the flag that replays of graphs use.
  Replays replays() const { return {&counts_[0].value, &counts_[1].value, &released()}; }
  // From now on no replay waits for others or notifies them, and results are invalid. Any thread.
  void release_replays() const noexcept { released().store(1, std::memory_order_release); }
  const Device& device() const { return device_; }
  // Whether other ranks are on this rank's device and take turns there. Valid after attach().
  bool takes_turns() const { return crowded_ && device_.takes_turns(); }

  // Used by the issuing thread only.
  DeviceSegments& group_memory() const { return *group_memory_; }
  // In this rank's device memory: ResolveArgs::table of the slot.
  std::uint64_t* table(int slot) const {
    return reinterpret_cast<std::uint64_t*>(counts_ + 2) + slot * kTableWords;
  }

 private:
  bool arrives(int owner) const;

  static constexpr int kTableWords = 2 * kMostResolved;
  // Whether the flag of each peer reaches its value in time; `flag(r)` returns both.
  template <typename F>
  bool all_reach(F flag, std::chrono::steady_clock::time_point deadline) const;

  Device& device_;
  bool shared_ = false;              // others may map this rank's memory
  bool crowded_ = false;             // other ranks are on the same device
  bool attached_ = false;            // to all ranks
  int registered_ = 0;               // with the device: the areas of the first ranks
  std::vector<std::byte*> staging_;  // by rank, null: not mapped
  std::unique_ptr<DeviceSegments> group_memory_;
  Line* counts_ = nullptr;  // in device memory, behind the staging memory; the tables follow
};

}  // namespace mpi_gdr::ipc
