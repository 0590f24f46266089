// Group memory of a device: memory that this process gives out for tensors, which the devices of the node's
// other ranks map and read and write in place (device_segments.hpp).
//
// It comes from segments, each one allocation of the device and one handle for the others. Segments are never
// given back, because others map them; each is at least an eighth of those before it, so that kMaxSegments
// hold more than any device has.
//
// The device may still use a block that is freed: on any stream, since streams are not told. So it is given
// out again only after the whole device has been waited for, which allocate() does where nothing else is left
// but a new segment. What the devices of other ranks do in a block must have ended, as seen by this device,
// before the tensor is freed.
//
// Threads: allocate() takes turns and may wait for the device, as Device::allocate() does: under the same
// conditions, and not while work of the device is being recorded. All else never does, and is for any thread.
// Lifetime: that of the process, but for forget(). In a forked child nothing is given out or taken back.
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

namespace mpigdr::ipc {

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

  // Uninitialised, aligned to kAlignment. Throws NoMemory where the limit or the device's memory is reached,
  // and what the device throws.
  void* allocate(std::size_t bytes);
  // What allocate() returned.
  void free(void* memory);
  bool owns(const void* memory) const { return find_place(memory, 0).has_value(); }

  struct Segment {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::string handle;  // Device::export_memory(); empty: the others cannot have it
  };
  // Only grows. What is below it is constant.
  int segments() const { return count_.load(std::memory_order_acquire); }
  const Segment& segment(int i) const { return segments_[static_cast<std::size_t>(i)]; }
  struct Place {
    int segment;
    std::uint64_t offset;
  };
  // Where [memory, memory + bytes) is, if all of it is in one segment. Takes no lock.
  std::optional<Place> find_place(const void* memory, std::size_t bytes) const;
  std::uint64_t limit() const { return limit_; }
  std::size_t reserved() const;  // bytes of all segments
  std::size_t in_use() const;    // bytes of all blocks that are given out

 private:
  struct Block {
    std::size_t bytes;
    int segment;
  };
  using Blocks = std::map<std::byte*, Block>;

  void* take_free(std::size_t bytes);  // null: nothing fits
  bool would_fit(std::size_t bytes) const;
  void wait_for_freed();
  void add_segment(std::size_t bytes);
  void insert_free(Blocks::node_type block);

  Device& device_;
  const std::uint64_t limit_;
  const int owner_;     // pid
  std::mutex growing_;  // by whoever asks the device for something; before mutex_
  std::atomic<int> count_{0};
  std::array<Segment, kMaxSegments> segments_;

  mutable std::mutex mutex_;  // all below; held for no call of the device
  Blocks used_;
  Blocks free_;   // no two are adjacent in a segment
  Blocks freed_;  // the device may still use them
  std::size_t reserved_ = 0, in_use_ = 0;
};

}  // namespace mpigdr::ipc
