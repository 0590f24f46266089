// Memory with the weakest order that PTX allows, on x86's strong one. A thread's stores are private at first;
// a barrier publishes them to the block, a device fence or the end of the block to the device, a system fence
// or a stream's write to all. Reads of the host's or another device's memory come from a cache that only
// system fences and stream waits invalidate. Volatile accesses bypass both.
//
// Nothing else happens: unfenced stores stay invisible and cached lines stale. Hardware does more, which no
// program may rely on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "gpu/store_buffer.hpp"

namespace fakecuda {

// The stores of a resident block and of its threads. Used by the thread that executes the block.
struct BlockStores {
  explicit BlockStores(std::size_t threads) : of_threads(threads) {}
  std::vector<StoreBuffer> of_threads;
  StoreBuffer of_block;
};

// The view of this process's devices on all memory. Thread-safe.
class WeakMemory {
 public:
  // `cached`: memory of others, not volatile.
  void read(const void* from, void* to, std::size_t bytes, bool cached);
  // Visible to the device.
  void write(void* to, const void* from, std::size_t bytes);
  void take(StoreBuffer& stores);
  // Visible to all, before earlier writes.
  void write_through(void* to, const void* from, std::size_t bytes);
  // Makes all writes of the device visible.
  void release();
  // Makes the writes of others visible to the device.
  void acquire();

  // Numbers submitted work, from 1: it sees what others have written before.
  std::uint64_t submit();
  // The number of the work that the calling thread executes; 0: none, which sees the cache as it is.
  static std::uint64_t& executed();

 private:
  static constexpr std::size_t kLine = 128, kMostWords = 1 << 18;
  struct Line {
    alignas(8) std::array<std::byte, kLine> bytes;
    std::uint64_t read_at = 0;  // number of submissions then
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
// Call before the first launch.
void weaken_memory();

}  // namespace fakecuda
