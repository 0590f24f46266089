// Publishes the segments of group memory (device_arena.hpp) to the ranks of a node, in a part of the host
// memory that a DeviceNode shares. Each rank publishes its segments in its own part; before each collective
// the others check it, map new segments and record that in the owner's part, without waiting.
//
// Threads: the caller serialises all but shown() and bases(). Other ranks write here at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "transport/ipc/device_arena.hpp"
#include "transport/ipc/node_flags.hpp"

namespace mpi_gdr::ipc {

class DeviceSegments {
 public:
  static constexpr int kMax = DeviceArena::kMaxSegments;
  static constexpr int kKinds = 2;  // of shown()
  // Size of a rank's part, for `size` ranks. A multiple of a line.
  static std::size_t bytes(int size, int slots);

  // `members`: the group's rank of each rank here; empty: the same.
  DeviceSegments(Device& device, int rank, int size, int slots, std::vector<int> members = {});
  // `memory`: this process's address of rank `r`'s part, zeroed at first. This rank's own part comes first;
  // all are attached before any call but publish().
  void attach(int r, std::byte* memory);

  // Publishes this rank's new segments. Also before all parts are attached: a rank that attaches later finds
  // them.
  void publish();
  // The same, and maps the others' new segments, for collectives from use `use` of the slots on. A segment
  // that cannot be mapped is not tried again; the first one is logged. A few loads if there are none.
  void refresh(std::uint64_t use);
  // Unmaps the segments of rank `r`. Throws what the device throws.
  void release(int r);

  // The location of `memory`, if it is group memory that all ranks map in use `use`.
  std::optional<DeviceArena::Location> find(const void* memory, std::uint64_t use) const;
  // Whether find() can succeed on any rank, as of the last refresh().
  bool any() const { return published_ > 0 || mapped_any_; }
  const std::uint64_t* bases() const { return own_bases_; }
  Flag& shown(int owner, int slot, int kind) const {
    return parts_[static_cast<std::size_t>(owner)].shown[slot * kKinds + kind].value;
  }

 private:
  struct Entry {
    std::uint64_t bytes = 0;
    std::uint64_t handle_bytes = 0;
    std::array<char, 192> handle{};
  };
  // A rank's part, in this process.
  struct Part {
    Line* news = nullptr;   // number of publications by other ranks, which add to it
    Line* count = nullptr;  // number of valid entries, by the owner's host
    // By rank, its writer: a bit for each of the owner's segments that it has mapped, and the first use.
    Line* mapped = nullptr;
    Line* shown = nullptr;  // by slot and kind; by the owner's device
    Entry* entries = nullptr;
    std::uint64_t* bases = nullptr;
  };
  void map(int r, std::uint64_t use);

  Device& device_;
  DeviceArena& arena_;
  const int rank_, size_, slots_;
  const std::vector<int> members_;
  std::vector<Part> parts_;  // by rank
  std::uint64_t* own_bases_ = nullptr;
  int published_ = 0;
  // The last value of `news`; at first one that it never has: segments published before attach() are not
  // counted.
  std::uint64_t last_news_ = ~std::uint64_t{0};
  std::vector<int> seen_;  // by rank: number of entries that were tried
  bool failed_before_ = false, mapped_any_ = false;
  mutable std::uint64_t everywhere_ = 0;  // cached: own segments that all have mapped
};

}  // namespace mpi_gdr::ipc
