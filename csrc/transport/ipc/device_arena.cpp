#include "transport/ipc/device_arena.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"

namespace mpi_gdr::ipc {
namespace {

// The granularity of the devices' runtimes: smaller allocations would share a handle.
constexpr std::size_t kGranularity = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

struct Arenas {
  std::mutex mutex;
  std::vector<std::pair<Device*, std::unique_ptr<DeviceArena>>> all;
};

Arenas& arenas() {
  static auto& leaked = *new Arenas;
  return leaked;
}

}  // namespace

DeviceArena& DeviceArena::of(Device& device) {
  Arenas& known = arenas();
  const std::lock_guard lock(known.mutex);
  for (const auto& [owner, arena] : known.all)
    if (owner == &device) return *arena;
  const std::uint64_t limit = Env::get().device_group_memory.value_or(kNoLimit);
  return *known.all.emplace_back(&device, std::make_unique<DeviceArena>(device, limit)).second;
}

DeviceArena* DeviceArena::find(const void* memory) {
  Arenas& known = arenas();
  const std::lock_guard lock(known.mutex);
  for (const auto& [owner, arena] : known.all)
    if (arena->owns(memory)) return arena.get();
  return nullptr;
}

void DeviceArena::forget(Device& device) {
  Arenas& known = arenas();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [&](const auto& entry) { return entry.first == &device; });
}

DeviceArena::DeviceArena(Device& device, std::uint64_t limit)
    : device_(device), limit_(limit), owner_(::getpid()) {}

void* DeviceArena::allocate(std::size_t bytes, const void* stream, bool may_wait) {
  if (limit_ == 0) throw NoMemory("no group memory on devices: MPI_GDR_DEVICE_GROUP_MEMORY=0");
  if (::getpid() != owner_) throw NoMemory("no group memory on a device in a forked process");
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw NoMemory(bytes, "group memory on a device");
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  if (void* const memory = take(size, stream)) return memory;
  const std::lock_guard turn(growing_);
  if (void* const memory = take(size, stream)) return memory;  // another thread has added a segment
  // Before adding a segment, waits for freed blocks of several streams, but not of one other stream.
  if (may_wait && would_fit(size, stream, false)) wait_for_freed();
  while (true) {
    // Threads that need not hold growing_ may have taken the freed block.
    if (void* const memory = take(size, stream)) return memory;
    try {
      add_segment(size);
    } catch (const NoMemory&) {
      if (!may_wait || !would_fit(size, stream, true)) throw;
      wait_for_freed();
    }
  }
}

// Returns the first block of the smallest run.
template <typename F>
std::optional<DeviceArena::Blocks::iterator> DeviceArena::find_run(std::size_t bytes, F usable) {
  std::optional<Blocks::iterator> best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (auto first = spare_.begin(), next = first; first != spare_.end(); first = next) {
    next = std::next(first);
    if (!usable(first->second.users)) continue;
    std::size_t run = first->second.bytes;
    while (next != spare_.end() && next->first == first->first + run &&
           next->second.segment == first->second.segment && usable(next->second.users))
      run += (next++)->second.bytes;
    if (run < bytes || run >= least) continue;
    best = first;
    least = run;
  }
  return best;
}

void* DeviceArena::take(std::size_t bytes, const void* stream) {
  const std::lock_guard lock(mutex_);
  const Users own{Users::Kind::Stream, stream};
  const auto first = find_run(bytes, [&](const Users& users) { return users == Users{} || users == own; });
  if (!first) return nullptr;
  std::byte* const memory = (*first)->first;
  // First, because it may throw.
  used_.emplace(memory, Block{bytes, (*first)->second.segment, own});
  std::size_t taken = 0;
  for (auto block = *first; taken < bytes;) {
    auto node = spare_.extract(block++);
    const std::size_t part = std::min(node.mapped().bytes, bytes - taken);
    taken += part;
    if (part == node.mapped().bytes) continue;
    node.key() += part;
    node.mapped().bytes -= part;
    spare_.insert(std::move(node));
  }
  in_use_ += bytes;
  return memory;
}

void DeviceArena::share_with_streams(const void* memory) {
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(static_cast<std::byte*>(const_cast<void*>(memory)));
  if (used != used_.end()) used->second.users = {Users::Kind::Several};
}

void DeviceArena::free(void* memory) {
  if (::getpid() != owner_) return;
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(static_cast<std::byte*>(memory));
  MPI_GDR_CHECK(used != used_.end());
  in_use_ -= used->second.bytes;
  insert_spare(used_.extract(used));
}

// Whether a block would fit after a synchronisation. `other_streams`: also in blocks of other streams.
bool DeviceArena::would_fit(std::size_t bytes, const void* stream, bool other_streams) {
  const std::lock_guard lock(mutex_);
  return find_run(bytes,
                  [&](const Users& users) {
                    return other_streams || users.kind != Users::Kind::Stream || users.stream == stream;
                  })
      .has_value();
}

void DeviceArena::wait_for_freed() {
  Blocks waiting;  // without those freed from now on
  {
    const std::lock_guard lock(mutex_);
    for (auto block = spare_.begin(); block != spare_.end();)
      if (const auto it = block++; it->second.users != Users{}) waiting.insert(spare_.extract(it));
  }
  const auto give_back = [&] {
    const std::lock_guard lock(mutex_);
    while (!waiting.empty()) insert_spare(waiting.extract(waiting.begin()));
  };
  try {
    device_.synchronize();
  } catch (...) {
    give_back();
    throw;
  }
  for (auto& [memory, block] : waiting) block.users = {};
  give_back();
}

void DeviceArena::insert_spare(Blocks::node_type block) {
  const auto merge_with_next = [this](Blocks::iterator first) {
    const auto next = std::next(first);
    if (next == spare_.end() || first->first + first->second.bytes != next->first ||
        first->second.segment != next->second.segment || first->second.users != next->second.users)
      return;
    first->second.bytes += next->second.bytes;
    spare_.erase(next);
  };
  const auto at = spare_.insert(std::move(block)).position;
  merge_with_next(at);
  if (at != spare_.begin()) merge_with_next(std::prev(at));
}

void DeviceArena::add_segment(std::size_t bytes) {
  const int index = count_.load(std::memory_order_relaxed);
  const std::size_t before = reserved();
  const auto refuse = [&](const std::string& why) {
    throw NoMemory(NoMemory(bytes, "group memory on a device").what() + (": " + why));
  };
  const std::size_t least = round_up(bytes, kGranularity);
  if (limit_ - before < least)
    refuse(std::to_string(before) + " bytes are reserved, and MPI_GDR_DEVICE_GROUP_MEMORY allows " +
           std::to_string(limit_));
  if (index == kMaxSegments) refuse("all " + std::to_string(kMaxSegments) + " segments are in use");
  std::size_t size = std::max({least, kLeastSegment, round_up(before / 8, kGranularity)});
  size = std::min<std::uint64_t>(size, (limit_ - before) / kGranularity * kGranularity);
  void* memory = nullptr;
  try {
    memory = device_.allocate(size);
  } catch (const NoMemory&) {
    if (size == least) throw;
    memory = device_.allocate(size = least);
  }
  Segment& segment = segments_[static_cast<std::size_t>(index)];
  try {
    segment.handle = device_.export_memory(memory);
  } catch (const Error& error) {  // usable, but not shared
    log(LogLevel::Warn, "INIT",
        "group memory of a device cannot be shared, collectives on it use staging memory: ", error.what());
  }
  segment.base = static_cast<std::byte*>(memory);
  segment.bytes = size;
  count_.store(index + 1, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  spare_.emplace(segment.base, Block{size, index, {}});
  reserved_ += size;
}

std::optional<DeviceArena::Location> DeviceArena::find(const void* memory, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  for (int i = segments() - 1; i >= 0; --i) {
    const Segment& known = segment(i);
    const auto base = reinterpret_cast<std::uintptr_t>(known.base);
    if (address < base || address - base >= known.bytes) continue;
    if (bytes > known.bytes - (address - base)) return std::nullopt;
    return Location{i, address - base};
  }
  return std::nullopt;
}

std::size_t DeviceArena::reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

std::size_t DeviceArena::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

}  // namespace mpi_gdr::ipc
