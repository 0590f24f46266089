// Publishes the segments of group memory (device_arena.hpp) to the ranks of a node, in a part of the host
// memory that a DeviceNode shares. Each rank publishes its segments in its own part; before each collective
// the others check it, map new segments and record that in the owner's part, without waiting.
//
// Threads: the caller serialises all but part(). Other ranks write there at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "device/resolved.hpp"
#include "transport/ipc/device_arena.hpp"
#include "transport/ipc/node_flags.hpp"

namespace mpi_gdr::ipc {

class DeviceSegments {
 public:
  static constexpr int kMax = DeviceArena::kMaxSegments;
  // Of one rank, zero at first.
  struct alignas(4096) Part {
    Line news;   // number of publications by other ranks, which add to it
    Line count;  // number of valid entries, by the owner's host
    // By rank, its writer: a bit for each of the owner's segments that it has mapped, and the first use.
    Line mapped[kMostResolved];
    Line shown[kSlots][2];  // by the owner's device: shown_word() of its input and of its output
    Handle entries[kMax];
    // For the owner's device: where it sees each segment of each rank; 0: not mapped. Not 0 for any segment
    // that find() returns on another rank.
    std::uint64_t bases[kMostResolved][kMax];
  };

  // `parts`: by rank; none: there are more than kMostResolved, which share no group memory.
  DeviceSegments(Device& device, const NodeFlags& node, std::vector<Part*> parts);

  // Publishes this rank's new segments.
  void publish();
  // The same, and maps the others' new segments, for collectives from use `use` of the slots on. A segment
  // that cannot be mapped is not tried again; the first one is logged. A few loads if there are none; else it
  // may wait for the device.
  void refresh(std::uint64_t use);
  // Unmaps the segments of rank `r`. Throws what the device throws.
  void release(int r);

  // The location of `memory`, if it is group memory that all ranks map in use `use`.
  std::optional<DeviceArena::Location> find(const void* memory, std::uint64_t use) const;
  // Whether find() can succeed on any rank, as of the last refresh().
  bool any() const { return published_ > 0 || mapped_any_; }
  Part& part(int r) const { return *parts_[static_cast<std::size_t>(r)]; }
  Part& own() const { return part(node_.rank()); }

 private:
  void map(int r, std::uint64_t use);

  Device& device_;
  DeviceArena& arena_;
  const NodeFlags& node_;
  const std::vector<Part*> parts_;
  int published_ = 0;
  // The last value of `news`; at first one that it never has, so that refresh() looks once in any case.
  std::uint64_t last_news_ = ~std::uint64_t{0};
  std::vector<int> seen_;  // by rank: number of entries that were tried
  bool failed_before_ = false, mapped_any_ = false;
  mutable std::uint64_t everywhere_ = 0;  // cached: own segments that all have mapped
};

}  // namespace mpi_gdr::ipc
