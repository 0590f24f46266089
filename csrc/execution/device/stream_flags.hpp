// Flags for stream executions, made up front: making them may synchronise the device, which no operation in
// flight may meet. A block serves one operation at a time and many in turn: the flags are never cleared
// between operations, each operation counts on from where the last one ended.
//
// Threads: acquire() by issuing threads, release() by anyone; the pool locks, but never while it waits for
// the device, because the progress thread releases. Flags outlive the pool and any
// operation that still uses them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"
#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Sets a flag unless it is further already: another thread may have let the device go on.
inline void raise(Flag& flag, std::uint64_t value) noexcept {
  std::uint64_t seen = flag.load(std::memory_order_relaxed);
  while (seen < value &&
         !flag.compare_exchange_weak(seen, value, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

// One operation's flags. Every value it writes or waits for lies in (base, base + span].
struct StreamFlags {
  Flag* flags = nullptr;
  std::uint64_t base = 0;
  std::size_t block = 0;  // the pool's number of it

  Flag* start() const { return flags; }    // the caller's data is ready; written by the device
  Flag* end() const { return flags + 1; }  // the device program is over; written by the device
  // What was submitted of a program is over, which has no end: written by the device.
  Flag* drained() const { return flags + 2; }
  Flag* host(int lane) const { return flags + 3 + 2 * lane; }    // host rounds done; written by advance()
  Flag* device(int lane) const { return flags + 4 + 2 * lane; }  // device rounds done; written by the device
  static constexpr std::size_t kCount = 3 + 2 * kMaxLanes;

  bool ended() const { return end()->load(std::memory_order_acquire) >= base + 1; }
  // The device will not touch them again.
  bool through() const { return ended() || drained()->load(std::memory_order_acquire) >= base + 1; }
};

class StreamFlagPool {
 public:
  StreamFlagPool(Device& device, std::size_t blocks);

  // A free block. Makes more when all are taken, which may synchronise the device: call it before the
  // operation is posted to the engine.
  StreamFlags acquire(std::uint64_t span);
  // Only once the device has written end(): nothing will touch the flags again.
  void release(const StreamFlags& flags);
  // For an operation that failed and was never released: the device may still touch its flags, so all memory
  // of the pool is kept for good.
  void leak();

  std::size_t blocks() const;

 private:
  struct Block {
    Flag* flags;
    std::uint64_t next_base;
  };
  void grow(std::size_t blocks);
  bool take(std::uint64_t span, StreamFlags& flags);  // false: all are taken

  Device& device_;
  std::mutex growing_;        // taken before mutex_, by those who make more
  mutable std::mutex mutex_;  // all below
  std::vector<std::shared_ptr<Flag[]>> memory_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> free_;  // indices into blocks_
};

}  // namespace mpi_gdr
