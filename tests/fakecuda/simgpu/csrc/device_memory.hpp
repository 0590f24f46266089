// Device memory: a caching allocator that behaves like torch's for CUDA.
//
// A freed block is reused at once by the next allocation on its stream, even if the device still uses it.
// Memory that another stream uses without recordStream(), or the host, is thus overwritten by its next owner
// or by poison, in stream order.
//
// Allocations on a captured stream come from the capture's own pool and return to it.
//
// Small blocks are parts of large CUDA allocations, which are never freed.
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
  // Waits for the whole device and blocks other calls, as cudaFree does.
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

  void free(void* memory);
  // A pool's number is never reused.
  void begin_capture(std::int64_t pool);
  void end_capture();
  // Its blocks, also those freed later, become common.
  void drop_pool(std::int64_t pool);
  Counts counts(c10::DeviceIndex device);

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
    c10::Stream stream;
    std::int64_t pool;                 // 0: common
    std::vector<c10::Stream> used_by;  // other streams
    std::vector<Mark> last_uses;       // of used_by, set by free()
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
  void cache_after_use(Block block);

  std::mutex mutex_;
  std::unordered_map<void*, Block> used_;
  std::vector<Block> waiting_;   // freed, but still used by other streams
  std::vector<Block> deferred_;  // the same, freed during a capture
  std::map<Class, std::vector<void*>> cached_;
  std::int64_t capture_ = 0;  // pool of the current capture; 0: none
  std::set<std::int64_t> dropped_;
  std::array<Counts, kMostDevices> counts_;
  std::array<std::pair<char*, std::size_t>, kMostDevices> rest_{};  // free part of the last segment
};

DeviceMemory& device_memory();

}  // namespace simgpu
