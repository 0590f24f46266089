// Group memory of a device: an allocator for tensors that the devices of the node's other ranks map, read and
// write in place (device_segments.hpp).
//
// A segment is one allocation of the device with one handle. Segments are never released, because others map
// them; each has at least an eighth of the bytes before it, so that kMaxSegments exceed any device's memory.
//
// The device may still use a freed block. So the block is reused on its own stream, behind the earlier work;
// on another stream, or if several used it, only after the whole device was synchronised. Devices of other
// ranks must have ended their work, as seen by this device, before a block is freed.
//
// Threads: any. allocate() may wait for the device, as Device::allocate() does, but not while work is being
// recorded. Lifetime: that of the process, or until forget(). A forked child can neither allocate nor free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "device/device.hpp"

namespace mpi_gdr::ipc {

class DeviceArena {
 public:
  static constexpr int kMaxSegments = 64;
  static constexpr std::size_t kAlignment = 512;
  static constexpr std::size_t kLeastSegment = std::size_t{64} << 20;
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

  // The device's arena; the first call constructs it with the limit MPI_GDR_DEVICE_GROUP_MEMORY.
  static DeviceArena& of(Device& device);
  // The arena of this memory, or null.
  static DeviceArena* find(const void* memory);
  // For tests, before the device is destroyed.
  static void forget(Device& device);
  // `limit`: bytes of all segments; 0: every allocation fails.
  DeviceArena(Device& device, std::uint64_t limit);
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // Uninitialised, aligned to kAlignment, for use on `stream`: a native handle, only compared; null is the
  // default stream. `may_wait`: for all work of the device. Throws NoMemory, and what the device throws.
  void* allocate(std::size_t bytes, const void* stream = nullptr, bool may_wait = true);
  // Other streams use the block at `memory`, too. Ignored if there is none.
  void share_with_streams(const void* memory);
  // `memory`: from allocate().
  void free(void* memory);
  bool owns(const void* memory) const { return find(memory, 0).has_value(); }

  struct Segment {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::string handle;  // Device::export_memory(); empty: it cannot be shared
  };
  // Only grows; the segments below it are constant.
  int segments() const { return count_.load(std::memory_order_acquire); }
  const Segment& segment(int i) const { return segments_[static_cast<std::size_t>(i)]; }
  struct Location {
    int segment;
    std::uint64_t offset;
  };
  // The location of [memory, memory + bytes), if it is in one segment. Lock-free.
  std::optional<Location> find(const void* memory, std::size_t bytes) const;
  std::size_t reserved() const;  // bytes of all segments
  std::size_t in_use() const;    // bytes of all allocated blocks

 private:
  // The streams whose work may still use a block.
  struct Users {
    enum class Kind : std::uint8_t { None, Stream, Several } kind = Kind::None;
    const void* stream = nullptr;
    bool operator==(const Users&) const = default;
  };
  struct Block {
    std::size_t bytes;
    int segment;
    Users users;
  };
  using Blocks = std::map<std::byte*, Block>;
  // Adjacent blocks that are together large enough.
  template <typename F>
  std::optional<Blocks::iterator> find_run(std::size_t bytes, F usable);

  void* take(std::size_t bytes, const void* stream);  // null: nothing fits
  bool would_fit(std::size_t bytes, const void* stream, bool other_streams);
  void wait_for_freed();
  void add_segment(std::size_t bytes);
  void insert_spare(Blocks::node_type block);

  Device& device_;
  const std::uint64_t limit_;
  const int owner_;     // pid
  std::mutex growing_;  // held while calling the device; taken before mutex_
  std::atomic<int> count_{0};
  std::array<Segment, kMaxSegments> segments_;

  mutable std::mutex mutex_;  // guards all below; not held while calling the device
  Blocks used_;
  Blocks spare_;  // no two with the same users are adjacent in a segment
  std::size_t reserved_ = 0, in_use_ = 0;
};

}  // namespace mpi_gdr::ipc
