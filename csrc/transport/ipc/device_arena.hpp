// Group memory of a device: memory that this process gives out for tensors, which the devices of the node's
// other ranks map and read and write in place (device_segments.hpp).
//
// It comes from segments, each one allocation of the device and one handle for the others. Segments are never
// given back, because others map them; each is at least an eighth of those before it, so that kMaxSegments
// hold more than any device has.
//
// The device may still use a block that is freed. So it is given out again on its own stream, behind whose
// work the next user's comes; on another stream, or if several used it, only once the whole device has been
// waited for. Before it is freed, devices of other ranks must have ended their work, as seen by this device.
//
// Threads: any. allocate() may wait for the device where no block of the stream's fits, as Device::allocate()
// does, and not while work of the device is being recorded. Lifetime: that of the process, but for forget().
// In a forked child nothing is given out or taken back.
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

  // The device's, made by the first call with the limit of MPI_GDR_DEVICE_GROUP_MEMORY.
  static DeviceArena& of(Device& device);
  // That which has given out this memory, or null.
  static DeviceArena* find(const void* memory);
  // For tests: the device is about to go, and its memory with it.
  static void forget(Device& device);
  // `limit`: bytes of all segments. 0: nothing is given out.
  DeviceArena(Device& device, std::uint64_t limit);
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // Uninitialised, aligned to kAlignment, for use on `stream`: a native handle, which is only compared; null
  // is the default one. `may_wait`: for all work of the device. Throws NoMemory, and what the device throws.
  void* allocate(std::size_t bytes, const void* stream = nullptr, bool may_wait = true);
  // Other streams use the block that begins at `memory` as well. Nothing where there is none.
  void share_with_streams(const void* memory);
  // What allocate() returned.
  void free(void* memory);
  bool owns(const void* memory) const { return find(memory, 0).has_value(); }

  struct Segment {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::string handle;  // Device::export_memory(); empty: the others cannot have it
  };
  // Only grows. What is below it is constant.
  int segments() const { return count_.load(std::memory_order_acquire); }
  const Segment& segment(int i) const { return segments_[static_cast<std::size_t>(i)]; }
  struct Location {
    int segment;
    std::uint64_t offset;
  };
  // Where [memory, memory + bytes) is, if all of it is in one segment. Takes no lock.
  std::optional<Location> find(const void* memory, std::size_t bytes) const;
  std::uint64_t limit() const { return limit_; }
  std::size_t reserved() const;  // bytes of all segments
  std::size_t in_use() const;    // bytes of all blocks that are given out

 private:
  // Whose work may still use a block.
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
  // Adjacent blocks that are large enough together.
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
  std::mutex growing_;  // by the thread that asks the device for something; before mutex_
  std::atomic<int> count_{0};
  std::array<Segment, kMaxSegments> segments_;

  mutable std::mutex mutex_;  // all below; held for no call of the device
  Blocks used_;
  Blocks spare_;  // no two with the same users are adjacent in a segment
  std::size_t reserved_ = 0, in_use_ = 0;
};

}  // namespace mpi_gdr::ipc
