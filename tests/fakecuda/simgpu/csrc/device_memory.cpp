#include "device_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "cudart/memory.hpp"

namespace simgpu {

namespace {
constexpr std::size_t kAlignment = 512;
constexpr std::size_t kSegment = 2 << 20, kSmall = kSegment / 2;

void free_block(void* memory) { device_memory().free(memory); }
}  // namespace

bool DeviceMemory::Class::operator<(const Class& other) const {
  return std::tuple(stream.device_index(), stream.id(), bytes, pool) <
         std::tuple(other.stream.device_index(), other.stream.id(), other.bytes, other.pool);
}

DeviceMemory& device_memory() {
  static DeviceMemory* const memory = new DeviceMemory;
  return *memory;
}

c10::DataPtr DeviceMemory::allocate(std::size_t bytes) {
  const c10::Stream stream = current_stream();
  if (!bytes) return {nullptr, nullptr, &free_block, stream.device()};
  // Few sizes, so that memory is reused often.
  const std::size_t rounded = std::bit_ceil(std::max(bytes, kAlignment));
  std::lock_guard lock(mutex_);
  collect();
  Counts& counts = counts_[stream.device_index()];
  void* memory = nullptr;
  const std::int64_t pool = capture_ && queue(stream).capturing() ? capture_ : 0;
  auto& cached = cached_[Class{stream, rounded, pool}];
  const bool reused = !cached.empty();
  if (reused) {
    memory = cached.back();
    cached.pop_back();
    ++counts.reused;
  } else {
    memory = fresh(rounded, stream.device_index());
  }
  if (reused || pool) {
    // Poisoned now, not by free(): in between the stream may have been made to wait for others that still use
    // the memory, as FSDP2 does. Not by a CUDA call, because nothing may block it.
    queue(stream).slip_in([memory, rounded] { std::memset(memory, fakecuda::kPoison, rounded); });
  }
  used_.emplace(memory, Block{memory, rounded, stream, pool, {}, {}});
  ++counts.allocated;
  return {memory, memory, &free_block, stream.device()};
}

void* DeviceMemory::fresh(std::size_t bytes, c10::DeviceIndex device) {
  const DeviceScope scope(device);
  const BesideCapture beside;
  if (bytes <= kSmall) return part_of_segment(bytes, device);
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, status != cudaErrorMemoryAllocation, "simgpu: no memory for ", bytes,
                   " bytes");
  check(status, "cudaMalloc");
  return memory;
}

void* DeviceMemory::part_of_segment(std::size_t bytes, c10::DeviceIndex device) {
  auto& [begin, left] = rest_[device];
  if (left < bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, kSegment), "cudaMalloc");
    begin = static_cast<char*>(memory);
    left = kSegment;
  }
  left -= bytes;
  return std::exchange(begin, begin + bytes);
}

void DeviceMemory::free(void* memory) {
  if (!memory) return;
  std::lock_guard lock(mutex_);
  const auto found = used_.find(memory);
  TORCH_INTERNAL_ASSERT(found != used_.end(), "not from the allocator of simgpu");
  Block block = std::move(found->second);
  used_.erase(found);
  ++counts_[block.stream.device_index()].freed;
  if (in_bad_fork()) return;
  // An event recorded now would belong to the capture.
  if (capture_ && !block.used_by.empty())
    deferred_.push_back(std::move(block));
  else
    cache_after_use(std::move(block));
}

void DeviceMemory::cache_after_use(Block block) {
  for (const c10::Stream stream : block.used_by) block.last_uses.push_back(queue(stream).mark());
  if (block.last_uses.empty())
    cache(block);
  else
    waiting_.push_back(std::move(block));
}

void DeviceMemory::cache(const Block& block) {
  const std::int64_t pool = dropped_.count(block.pool) ? 0 : block.pool;
  cached_[Class{block.stream, block.bytes, pool}].push_back(block.memory);
}

void DeviceMemory::begin_capture(std::int64_t pool) {
  std::lock_guard lock(mutex_);
  capture_ = pool;
}

void DeviceMemory::end_capture() {
  std::lock_guard lock(mutex_);
  capture_ = 0;
  for (Block& block : deferred_) cache_after_use(std::move(block));
  deferred_.clear();
}

void DeviceMemory::drop_pool(std::int64_t pool) {
  std::lock_guard lock(mutex_);
  dropped_.insert(pool);
  for (auto& [key, blocks] : cached_) {
    if (key.pool != pool) continue;
    auto& to = cached_[Class{key.stream, key.bytes, 0}];
    to.insert(to.end(), blocks.begin(), blocks.end());
    blocks.clear();
  }
}

void DeviceMemory::collect() {
  std::erase_if(waiting_, [this](const Block& block) {
    for (const Mark& mark : block.last_uses)
      if (!mark.reached()) return false;
    cache(block);
    return true;
  });
}

void DeviceMemory::emptyCache(c10::MempoolId_t) {
  if (!started()) return;
  std::lock_guard lock(mutex_);
  collect();
  for (auto& [key, blocks] : cached_) {
    if (key.pool || key.bytes <= kSmall) continue;
    for (void* memory : blocks) check(cudaFree(memory), "cudaFree");
    blocks.clear();
  }
}

void DeviceMemory::recordStream(const c10::DataPtr& memory, c10::Stream stream) {
  std::lock_guard lock(mutex_);
  const auto found = used_.find(memory.get());
  if (found == used_.end() || found->second.stream == stream) return;
  auto& used_by = found->second.used_by;
  if (std::find(used_by.begin(), used_by.end(), stream) == used_by.end()) used_by.push_back(stream);
}

c10::DeleterFnPtr DeviceMemory::raw_deleter() const { return &free_block; }

void DeviceMemory::copy_data(void* dst, const void* src, std::size_t bytes) const {
  current_queue().copy(dst, src, bytes);
}

DeviceMemory::Counts DeviceMemory::counts(c10::DeviceIndex device) {
  std::lock_guard lock(mutex_);
  return counts_[resolve(device)];
}

namespace {
const bool memory_registered = [] {
  c10::SetAllocator(kDevice, &device_memory());
  return true;
}();
}  // namespace

}  // namespace simgpu
