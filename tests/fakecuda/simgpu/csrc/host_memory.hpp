// Pinned host memory for asynchronous copies. Like torch's allocator for CUDA it keeps a freed block until
// the streams recorded for it are done: use without such a record finds poison.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include <map>
#include <mutex>
#include <vector>

#include "runtime.hpp"

namespace simgpu {

class HostMemory final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dst, const void* src, std::size_t bytes) const override;
  // `pointer`: anywhere in the block. False if it is not in this memory.
  bool record_event(void* pointer, void* context, c10::Stream stream) override;
  void empty_cache() override;
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool contains(const void* pointer);
  void free(void* memory);

 private:
  struct Block {
    std::size_t bytes;
    std::vector<Mark> last_uses;
    bool free = false;
  };
  using Blocks = std::map<const char*, Block>;

  Blocks::iterator find(const void* pointer);
  void cache(void* memory, Block& block);
  void collect();

  std::mutex mutex_;
  Blocks blocks_;
  std::multimap<std::size_t, void*> cached_;
};

HostMemory& host_memory();

}  // namespace simgpu
