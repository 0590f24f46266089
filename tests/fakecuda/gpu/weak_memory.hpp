// Memory whose order is as weak as PTX allows, where x86's own is strong. A thread's stores are at first its
// own; a barrier shows them to the block, a fence of the device and the end of the block to the device, a
// fence of the system and what streams write to all others. Reads of memory that others have, the host or
// another device, come from a cache that forgets nothing by itself: what fences of the system and waits of
// streams let it forget is read anew. Volatile accesses go past all that.
//
// Only what is asked for happens: a store that nobody fences is never seen by others, a line that was read
// stays. Hardware does more by itself, which no program may count on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "gpu/store_buffer.hpp"

namespace fakecuda {

// Of a block that is resident, and of its threads. Used by whoever executes it.
struct BlockStores {
  explicit BlockStores(std::size_t threads) : of_threads(threads) {}
  std::vector<StoreBuffer> of_threads;
  StoreBuffer of_block;
};

// What the devices of this process have of all memory. Thread-safe.
class WeakMemory {
 public:
  // `cached`: of others, and not past the cache.
  void read(const void* from, void* to, std::size_t bytes, bool cached);
  // Seen by the device.
  void write(void* to, const void* from, std::size_t bytes);
  void take(StoreBuffer& stores);
  // Seen by all, before what was written earlier.
  void write_through(void* to, const void* from, std::size_t bytes);
  // All see what the device has written.
  void release();
  // The device sees what others have written.
  void acquire();

  // The number of work that is submitted now, from 1: what others have written before, it sees.
  std::uint64_t submit();
  // Of the work that the calling thread executes; 0: of none, which sees what the cache has.
  static std::uint64_t& executed();

 private:
  static constexpr std::size_t kLine = 128, kMostWords = 1 << 18;
  struct Line {
    alignas(8) std::array<std::byte, kLine> bytes;
    std::uint64_t read_at = 0;  // so much had been submitted
  };
  void read_cached(const std::byte* from, std::byte* to, std::size_t bytes);
  void drain();
  void forget(const void* memory, std::size_t bytes);

  std::mutex mutex_;
  StoreBuffer stores_;
  std::unordered_map<std::uintptr_t, Line> lines_;
  std::uint64_t submitted_ = 0;
};

// Null: memory is as strong as the host's.
WeakMemory* weak_memory();
// Before the first launch.
void weaken_memory();

}  // namespace fakecuda
