// How the ranks of a node find the segments of each other's group memory (device_arena.hpp): a part of the
// host memory that a DeviceNode shares. Each rank publishes its segments in its own part; the others look
// there before each collective, map what is new, and record that in the owner's part, without waiting.
//
// Threads: all but shown() and bases() are serialised by the caller. Other ranks write here at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "transport/ipc/device_arena.hpp"

namespace mpi_gdr::ipc {

// A word that others write beside words that others read.
struct alignas(64) Line {
  Flag value, since;
};

class DeviceSegments {
 public:
  static constexpr int kMax = DeviceArena::kMaxSegments;
  static constexpr int kKinds = 2;  // of shown()
  // Of a rank's part, in a segment that `size` ranks share. A multiple of a line.
  static std::size_t bytes(int size, int slots);

  // `members`: what the ranks are called in their group; empty: as here.
  DeviceSegments(Device& device, int rank, int size, int slots, std::vector<int> members = {});
  // Where this process has rank `r`'s part, zeroed at first. Its own one comes first; all are known before
  // anything but publish() is called.
  void attach(int r, std::byte* memory);

  // Own segments since the last time. Before all parts are known: a rank that attaches then sees them.
  void publish();
  // The same, and maps what the others have published, for collectives from use `use` of the slots on. One
  // that cannot be mapped is never tried again, the first is logged. A few loads where nothing is new.
  void refresh(std::uint64_t use);
  // What this process has mapped of rank `r`. Throws what the device throws.
  void release(int r);

  // Where `memory` is, if it is group memory which all ranks find in use `use`.
  std::optional<DeviceArena::Location> find(const void* memory, std::uint64_t use) const;
  // Whether find() can have an answer on any rank, as of the last refresh().
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
  // A rank's part, as this process sees it.
  struct Part {
    Line* news = nullptr;   // how often anybody has published; raised by all of them
    Line* count = nullptr;  // of the owner's entries; raised by its host when they are there
    // By rank, which writes it: a bit for each of the owner's segments that it has mapped, and since which
    // use.
    Line* mapped = nullptr;
    Line* shown = nullptr;  // by slot and kind, by the owner's device
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
  // Of the news; at first what it never is: segments are published before any rank can be notified.
  std::uint64_t heard_ = ~std::uint64_t{0};
  std::vector<int> seen_;  // by rank: entries that were tried
  bool failed_before_ = false, mapped_any_ = false;
  mutable std::uint64_t everywhere_ = 0;  // own segments that all have mapped, as far as known
};

}  // namespace mpi_gdr::ipc
