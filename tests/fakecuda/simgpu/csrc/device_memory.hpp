// Device memory: a caching allocator with the habits of torch's own for CUDA.
//
// A freed block is handed out again at once to the next allocation on the stream that it was allocated on,
// though the device may be far from done with it. Who uses memory on another stream without recordStream(),
// or from the host, so meets the data of the next owner, or the poison with which it is handed out in line.
//
// What is allocated on a stream that is being captured comes from a pool of the capture's own, and goes back
// there.
//
// It is CUDA's memory: small blocks are parts of large ones, which are never given back.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime.hpp"

namespace simgpu {

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  struct Counts {
    std::int64_t allocated = 0, freed = 0, reused = 0;  // blocks
  };

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dst, const void* src, std::size_t bytes) const override;
  bool initialized() override { return true; }
  // Waits for the whole device, and shuts others out meanwhile, as cudaFree does.
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

  void free(void* memory);
  // The numbers of pools are never used twice.
  void begin_capture(std::int64_t pool);
  void end_capture();
  // What is in it, now and later, is everybody's.
  void drop_pool(std::int64_t pool);
  Counts counts(c10::DeviceIndex device);

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
    c10::Stream stream;
    std::int64_t pool;                 // 0: everybody's
    std::vector<c10::Stream> used_by;  // other streams
    std::vector<Mark> last_uses;       // of those, once it is freed
  };
  struct Class {
    c10::Stream stream;
    std::size_t bytes;
    std::int64_t pool;
    bool operator<(const Class& other) const;
  };

  void* fresh(std::size_t bytes, c10::DeviceIndex device);
  void* part_of_segment(std::size_t bytes, c10::DeviceIndex device);
  void cache(const Block& block);
  void collect();
  void let_go(Block block);

  std::mutex mutex_;
  std::unordered_map<void*, Block> used_;
  std::vector<Block> waiting_;   // freed, but other streams are not done
  std::vector<Block> deferred_;  // the same, freed while a capture is under way
  std::map<Class, std::vector<void*>> cached_;
  std::int64_t capture_ = 0;  // the pool of the one that is under way; 0: none
  std::set<std::int64_t> dropped_;
  std::array<Counts, kMostDevices> counts_;
  std::array<std::pair<char*, std::size_t>, kMostDevices> rest_{};  // of the last segment, and its bytes
};

DeviceMemory& device_memory();

}  // namespace simgpu
