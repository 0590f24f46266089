#include "engine/scratch_pool.hpp"

#include <bit>
#include <cstdlib>
#include <utility>

#include "common/error.hpp"

namespace mpigdr {

ScratchPool::~ScratchPool() {
  for (auto& [bytes, memory] : free_) std::free(memory);
}

void ScratchPool::Block::swap(Block& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
}

ScratchPool::Block::~Block() {
  if (memory_) pool_->give_back(memory_, bytes_);
}

ScratchPool::Block ScratchPool::take(std::size_t bytes) {
  if (bytes == 0) return {};
  // Few size classes (steps of an eighth of a power of two), so that blocks of similar operations are shared.
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
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!memory) fail(ErrorCode::System, "no memory for ", bytes, " bytes of scratch");
  return Block(this, memory, bytes);
}

void ScratchPool::give_back(void* memory, std::size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (kept_ + bytes <= kMostKept) {
      free_.emplace(bytes, memory);
      kept_ += bytes;
      return;
    }
  }
  std::free(memory);
}

}  // namespace mpigdr
