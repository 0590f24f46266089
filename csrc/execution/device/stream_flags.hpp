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
#include <span>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Sets a flag, 32 or 64 bits wide, unless it is further already: another thread may have let the device go
// on.
template <typename Value>
void raise(std::atomic<Value>& flag, Value value) noexcept {
  Value seen = flag.load(std::memory_order_relaxed);
  while (seen < value &&
         !flag.compare_exchange_weak(seen, value, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

// One operation's flags. Every value it writes or waits for lies in (base, base + span].
struct StreamFlags {
  Flag* flags = nullptr;
  std::uint32_t base = 0;
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
  StreamFlags acquire(std::uint32_t span);
  // Only once the device has written end(): nothing will touch the flags again.
  void release(const StreamFlags& flags);
  // For an operation that failed and was never released: the device may still touch its flags, so all memory
  // of the pool is kept for good.
  void leak();

  std::size_t blocks() const;

 private:
  struct Block {
    Flag* flags;
    std::uint32_t next_base;
  };
  void grow(std::size_t blocks);
  bool take(std::uint32_t span, StreamFlags& flags);  // false: all are taken

  Device& device_;
  std::mutex growing_;        // taken before mutex_, by those who make more
  mutable std::mutex mutex_;  // all below
  std::vector<std::shared_ptr<Flag[]>> memory_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> free_;  // indices into blocks_
};

// The flags of one device program, and what becomes of them: back to the pool, or leaked where the device may
// still write to them.
//
// Threads: acquire(), begin() and end_early() on the issuing thread; over() by the holder of the progress
// role, once the device has written end(), hence after begin(); the destructor on any thread, behind them.
class ProgramFlags {
 public:
  explicit ProgramFlags(std::shared_ptr<StreamFlagPool> pool) : pool_(std::move(pool)) {}
  ~ProgramFlags() {
    if (!flags_.flags) return;
    if (with_device_.load(std::memory_order_acquire))
      pool_->leak();
    else
      pool_->release(flags_);
  }
  ProgramFlags(const ProgramFlags&) = delete;
  ProgramFlags& operator=(const ProgramFlags&) = delete;

  // Once, before anything else. See StreamFlagPool::acquire().
  void acquire(std::uint32_t span) { flags_ = pool_->acquire(span); }
  // The program is submitted from now on.
  void begin() { with_device_.store(true, std::memory_order_release); }
  // No more of it will be submitted, and its end has not been: marks where the queues are.
  void end_early(Device& device, std::span<DeviceQueue* const> queues) noexcept;
  void over() { with_device_.store(false, std::memory_order_release); }

  const StreamFlags* operator->() const { return &flags_; }

 private:
  const std::shared_ptr<StreamFlagPool> pool_;
  StreamFlags flags_;  // constant after acquire()
  std::atomic<bool> with_device_{false};
};

}  // namespace mpi_gdr
