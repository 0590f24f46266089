#include "execution/device/stream_flags.hpp"

#include <algorithm>

#include "common/error.hpp"

namespace mpi_gdr {

namespace {

// Never frees the memory. It stays reachable, so leak checkers do not report it.
void keep_for_good(const std::vector<std::shared_ptr<Flag[]>>& memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<Flag[]>>;
  std::lock_guard lock(mutex);
  for (const auto& slab : memory)
    if (std::find(kept->begin(), kept->end(), slab) == kept->end()) kept->push_back(slab);
}

}  // namespace

StreamFlagPool::StreamFlagPool(Device& device, std::size_t blocks) : device_(device) {
  grow(std::max<std::size_t>(blocks, 1));
}

void StreamFlagPool::grow(std::size_t blocks) {
  std::shared_ptr<Flag[]> made = device_.make_flags(blocks * StreamFlags::kCount);  // may wait for the device
  std::lock_guard lock(mutex_);
  Flag* const first = made.get();
  memory_.push_back(std::move(made));
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
  keep_for_good(memory_);
}

std::size_t StreamFlagPool::blocks() const {
  std::lock_guard lock(mutex_);
  return blocks_.size();
}

}  // namespace mpi_gdr
