#include "execution/scratch_pool.hpp"

#include <bit>
#include <cstdlib>
#include <new>

#include "common/error.hpp"

namespace mpi_gdr {

namespace {

void* allocate(std::size_t bytes) { return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096); }

}  // namespace

void ScratchPool::drop_kept() noexcept {
  std::lock_guard lock(mutex_);
  for (auto& [bytes, memory] : free_) std::free(memory);
  free_.clear();
  kept_ = 0;
}

ScratchPool::Block ScratchPool::take(std::size_t bytes) {
  if (bytes == 0) return {};
  // Few size classes, so that similar operations share blocks.
  const std::size_t step = std::max<std::size_t>(4096, std::bit_floor(bytes) / 8);
  bytes = (bytes + step - 1) / step * step;
  {
    std::lock_guard lock(mutex_);
    if (auto found = free_.lower_bound(bytes); found != free_.end() && found->first <= 2 * bytes) {
      auto [size, memory] = *found;
      free_.erase(found);
      kept_ -= size;
      return Block(this, memory, size);
    }
  }
  void* memory = allocate(bytes);
  if (!memory) {
    drop_kept();  // blocks of other sizes
    memory = allocate(bytes);
  }
  if (!memory) throw NoMemory(bytes, "scratch");
  return Block(this, memory, bytes);
}

void ScratchPool::release(void* memory, std::size_t bytes) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (kept_ + bytes <= kMostKept) {
      free_.emplace(bytes, memory);
      kept_ += bytes;
      return;
    }
  } catch (const std::bad_alloc&) {
    // No memory to record it: it is freed.
  }
  std::free(memory);
}

}  // namespace mpi_gdr
