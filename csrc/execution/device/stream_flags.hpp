// A pool of flags for operations, allocated up front, because an allocation may synchronise the device. A
// block serves one operation after the other without being cleared: each starts at the values where the
// previous one ended.
//
// Threads: acquire() on issuing threads, release() and leak() on any. release() does not wait for an
// acquire() that waits for the device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"
#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Never lowers the flag: another thread may have set it higher to unblock the device.
inline void raise(Flag& flag, std::uint64_t value) noexcept {
  std::uint64_t seen = flag.load(std::memory_order_relaxed);
  while (seen < value &&
         !flag.compare_exchange_weak(seen, value, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

// One operation's flags. Every value that it writes or waits for is in (base, base + span].
struct StreamFlags {
  Flag* flags = nullptr;
  std::uint64_t base = 0;
  std::size_t block = 0;  // index in the pool

  Flag* start() const { return flags; }    // the caller's data is ready; written by the device
  Flag* end() const { return flags + 1; }  // the device program is over; written by the device
  // After a partial launch: the submitted part has completed; written by the device.
  Flag* drained() const { return flags + 2; }
  Flag* host(int lane) const { return flags + 3 + 2 * lane; }    // host rounds done; written by advance()
  Flag* device(int lane) const { return flags + 4 + 2 * lane; }  // device rounds done; written by the device
  static constexpr std::size_t kCount = 3 + 2 * kMaxLanes;

  bool ended() const { return end()->load(std::memory_order_acquire) >= base + 1; }
  // The device will not access these flags again.
  bool device_done() const { return ended() || drained()->load(std::memory_order_acquire) >= base + 1; }
};

class StreamFlagPool {
 public:
  StreamFlagPool(Device& device, std::size_t blocks);

  // Allocates if all blocks are taken, which may synchronise the device: call it before the operation is
  // posted to the engine.
  StreamFlags acquire(std::uint64_t span);
  // The device must not access these flags again.
  void release(const StreamFlags& flags);
  // Keeps all memory of the pool for ever: the device may still access a failed operation's flags.
  void leak();

  std::size_t blocks() const;

 private:
  struct Block {
    Flag* flags;
    std::uint64_t next_base;
  };
  void grow(std::size_t blocks);
  bool take(std::uint64_t span, StreamFlags& flags);  // false if all are taken

  Device& device_;
  std::mutex growing_;        // held while allocating; taken before mutex_
  mutable std::mutex mutex_;  // guards all below; not held while waiting for the device
  using Memory = std::vector<std::shared_ptr<Flag[]>>;
  const std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  bool leaked_ = false;
  std::vector<Block> blocks_;
  std::vector<std::size_t> free_;  // indices into blocks_
};

}  // namespace mpi_gdr
