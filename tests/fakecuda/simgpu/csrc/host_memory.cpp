#include "host_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "cudart/memory.hpp"

namespace simgpu {

namespace {
constexpr std::size_t kHostAlignment = 512;

void free_on_host(void* memory) { host_memory().free(memory); }

bool over(const std::vector<Mark>& marks) {
  return std::all_of(marks.begin(), marks.end(), [](const Mark& mark) { return mark.reached(); });
}
}  // namespace

HostMemory& host_memory() {
  static HostMemory* const memory = new HostMemory;
  return *memory;
}

c10::DataPtr HostMemory::allocate(std::size_t bytes) {
  const c10::Device device(c10::DeviceType::CPU);
  if (!bytes) return {nullptr, nullptr, &free_on_host, device};
  const std::size_t rounded = std::bit_ceil(std::max(bytes, kHostAlignment));
  std::lock_guard lock(mutex_);
  collect();
  void* memory = nullptr;
  if (const auto found = cached_.find(rounded); found != cached_.end()) {
    memory = found->second;
    cached_.erase(found);
  } else {
    const BesideCapture beside;
    check(cudaHostAlloc(&memory, rounded, cudaHostAllocPortable), "cudaHostAlloc");
  }
  blocks_[static_cast<const char*>(memory)] = Block{rounded, {}};
  return {memory, memory, &free_on_host, device};
}

HostMemory::Blocks::iterator HostMemory::find(const void* pointer) {
  const auto* const place = static_cast<const char*>(pointer);
  auto block = blocks_.upper_bound(place);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  return place < block->first + block->second.bytes && !block->second.free ? block : blocks_.end();
}

bool HostMemory::contains(const void* pointer) {
  std::lock_guard lock(mutex_);
  return find(pointer) != blocks_.end();
}

bool HostMemory::record_event(void* pointer, void*, c10::Stream stream) {
  std::lock_guard lock(mutex_);
  const auto block = find(pointer);
  if (block == blocks_.end()) return false;
  if (queue(stream).capturing()) return true;  // the graph's owner keeps its memory
  auto& marks = block->second.last_uses;
  std::erase_if(marks, [](const Mark& mark) { return mark.reached(); });
  marks.push_back(queue(stream).mark());
  return true;
}

void HostMemory::free(void* memory) {
  if (!memory) return;
  std::lock_guard lock(mutex_);
  const auto block = find(memory);
  TORCH_INTERNAL_ASSERT(block != blocks_.end(), "not from the pinned memory of simgpu");
  block->second.free = true;
  if (over(block->second.last_uses)) {
    cache(memory, block->second);
    blocks_.erase(block);
  }
}

void HostMemory::cache(void* memory, Block& block) {
  std::memset(memory, fakecuda::kPoison, block.bytes);
  cached_.emplace(block.bytes, memory);
}

void HostMemory::collect() {
  for (auto entry = blocks_.begin(); entry != blocks_.end();) {
    Block& block = entry->second;
    const bool done = block.free && over(block.last_uses);
    if (done) cache(const_cast<char*>(entry->first), block);
    entry = done ? blocks_.erase(entry) : std::next(entry);
  }
}

void HostMemory::empty_cache() {
  std::lock_guard lock(mutex_);
  collect();
  for (const auto& [bytes, memory] : cached_) check(cudaFreeHost(memory), "cudaFreeHost");
  cached_.clear();
}

c10::DeleterFnPtr HostMemory::raw_deleter() const { return &free_on_host; }

void HostMemory::copy_data(void* dst, const void* src, std::size_t bytes) const {
  std::memcpy(dst, src, bytes);
}

namespace {
const bool host_memory_registered = [] {
  at::setHostAllocator(kDevice, &host_memory());
  return true;
}();
}  // namespace

}  // namespace simgpu
