#include "execution/device/stream_flags.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "common/keep_until_exit.hpp"

namespace mpi_gdr {

StreamFlagPool::StreamFlagPool(Device& device, std::size_t blocks) : device_(device) {
  grow(std::max<std::size_t>(blocks, 1));
}

void StreamFlagPool::grow(std::size_t blocks) {
  std::shared_ptr<Flag[]> made = device_.make_flags(blocks * StreamFlags::kCount);  // may wait for the device
  std::lock_guard lock(mutex_);
  Flag* const first = made.get();
  memory_->push_back(std::move(made));
  for (std::size_t b = 0; b < blocks; ++b) {
    free_.push_back(blocks_.size());
    blocks_.push_back({first + b * StreamFlags::kCount, 0});
  }
}

StreamFlags StreamFlagPool::acquire(std::uint64_t span) {
  StreamFlags flags;
  while (!take(span, flags)) {
    std::lock_guard growing(growing_);
    if (take(span, flags)) break;  // meanwhile another thread has called grow() or release()
    grow(blocks());
  }
  return flags;
}

bool StreamFlagPool::take(std::uint64_t span, StreamFlags& flags) {
  std::lock_guard lock(mutex_);
  if (free_.empty()) return false;
  const std::size_t index = free_.back();
  free_.pop_back();
  Block& block = blocks_[index];
  flags = {block.flags, block.next_base, index};
  block.next_base += span;
  return true;
}

void StreamFlagPool::release(const StreamFlags& flags) {
  std::lock_guard lock(mutex_);
  MPI_GDR_CHECK(flags.block < blocks_.size() && blocks_[flags.block].flags == flags.flags);
  free_.push_back(flags.block);
}

void StreamFlagPool::leak() {
  std::lock_guard lock(mutex_);
  if (!std::exchange(leaked_, true)) keep_until_exit(memory_);
}

std::size_t StreamFlagPool::blocks() const {
  std::lock_guard lock(mutex_);
  return blocks_.size();
}

}  // namespace mpi_gdr
