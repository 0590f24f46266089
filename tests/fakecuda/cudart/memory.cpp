#include "cudart/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "cudart/settings.hpp"
#include "gpu/fault.hpp"
#include "gpu/weak_memory.hpp"

namespace fakecuda {
namespace {

constexpr std::size_t kPage = 4096, kMostPoison = std::size_t{1} << 20;

std::size_t in_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

const std::byte* as_bytes(const void* address) { return static_cast<const std::byte*>(address); }

// No program enables peer access within a process.
bool reaches(int device, const Range& range) { return range.everywhere || range.device == device; }

// Per thread: the range of the last allowed access, valid until any range is removed.
struct Allowed {
  const std::byte *begin = nullptr, *end = nullptr;
  std::uint64_t generation = 0;
  int device = -1;
  Where where = Where::Own;
};

}  // namespace

Where where(const Range& range, int device) {
  switch (range.kind) {
    case Range::Kind::Device:
      return range.device == device ? Where::Own : Where::Peer;
    case Range::Kind::Imported:
      return Where::Peer;
    default:
      return Where::Host;
  }
}

int& executing_device() {
  thread_local int device = -1;
  return device;
}

Memory& Memory::get() {
  static auto& leaked = *new Memory;
  return leaked;
}

// Each process uses other addresses, so that foreign pointers are invalid.
Memory::Memory() {
  void* const all =
      ::mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) fault("no room for the addresses of devices");
  begin_ = static_cast<std::byte*>(all);
  end_ = begin_ + kAddresses;
  next_ = begin_;
  if (!kOneProcess) next_ += static_cast<std::size_t>(::getpid()) % 4096 * (std::size_t{2} << 20);
  set_memory_rules(this);
}

std::byte* Memory::reserve(std::size_t bytes) {
  const std::size_t size = in_pages(bytes) + 2 * kPage;
  if (size > static_cast<std::size_t>(end_ - next_)) return nullptr;
  std::byte* const memory = next_ + kPage;
  next_ += size;
  return memory;
}

void* Memory::allocate(int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t most = Settings::get().bytes;
  if (bytes > most || in_use(device) > most - bytes) return nullptr;
  const int file = ::memfd_create("fakecuda", MFD_CLOEXEC);
  std::byte* const memory = file < 0 ? nullptr : reserve(bytes);
  if (!memory || ::ftruncate(file, static_cast<off_t>(in_pages(bytes))) != 0 ||
      ::mmap(memory, in_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
          MAP_FAILED) {
    if (file >= 0) ::close(file);
    return nullptr;
  }
  // Tests of one process allocate more than the machine has, and touch little of it.
  std::memset(memory, kPoison, kOneProcess ? std::min(bytes, kMostPoison) : bytes);
  ranges_.emplace(memory, Range{memory, bytes, Range::Kind::Device, device, false, file});
  return memory;
}

void* Memory::allocate_pinned(int device, std::size_t bytes, bool everywhere) {
  const std::lock_guard lock(mutex_);
  std::byte* const memory = reserve(bytes);
  if (!memory || ::mmap(memory, in_pages(bytes), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    return nullptr;
  std::memset(memory, kPoison, bytes);
  const auto range =
      ranges_.emplace(memory, Range{memory, bytes, Range::Kind::Pinned, device, everywhere}).first;
  if (Settings::get().elsewhere) show_elsewhere(range->second);
  return memory;
}

// Private memory cannot be mapped twice: devices see it at the host's address.
void Memory::show_elsewhere(Range& range) {
  std::byte* const seen = reserve(range.bytes);
  if (!seen ||
      ::mremap(range.begin, 0, in_pages(range.bytes), MREMAP_MAYMOVE | MREMAP_FIXED, seen) == MAP_FAILED)
    return;
  ranges_.emplace(seen, Range{seen, range.bytes, Range::Kind::Seen, range.device, range.everywhere});
  range.seen = seen;
}

Memory::Ranges::iterator Memory::expect(void* memory, Range::Kind kind, const char* rule) {
  const auto range = ranges_.find(as_bytes(memory));
  if (range == ranges_.end()) fault(freed_.contains(as_bytes(memory)) ? "double free" : rule, memory);
  if (range->second.kind != kind) fault(rule, memory);
  return range;
}

// The addresses stay reserved and inaccessible.
void Memory::withdraw(Ranges::iterator range) {
  if (weak_memory()) weak_memory()->release();  // of earlier writes, while the memory is mapped
  const Range& it = range->second;
  for (std::byte* const again : {it.seen, it.copied})
    if (again) withdraw(ranges_.find(again));
  if (it.kind != Range::Kind::Registered) {
    ::mmap(it.begin, in_pages(it.bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
           -1, 0);
    freed_.emplace(it.begin, it.bytes);
  }
  if (it.file >= 0) ::close(it.file);
  ranges_.erase(range);
  generation_.fetch_add(1, std::memory_order_release);
}

void Memory::free(void* memory, Range::Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto range = expect(memory, kind, "free of what was never allocated");
  struct flock all{};
  all.l_type = F_WRLCK;
  if (kind == Range::Kind::Device && ::fcntl(range->second.file, F_OFD_GETLK, &all) == 0 &&
      all.l_type != F_UNLCK)
    fault("free of memory that another process has open", memory);
  withdraw(range);
}

void Memory::forget(int device) {
  const std::lock_guard lock(mutex_);
  for (auto range = ranges_.begin(); range != ranges_.end();) {
    const auto it = range++;
    const Range::Kind kind = it->second.kind;
    if (it->second.device == device && (kind == Range::Kind::Device || kind == Range::Kind::Imported))
      withdraw(it);
  }
}

bool Memory::register_host(void* memory, std::size_t bytes, int device, bool everywhere) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (address % kPage != 0 || bytes == 0 || bytes % kPage != 0)
    fault("registering what is not whole pages", memory);
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(as_bytes(memory) + bytes);
  if (next != ranges_.begin()) {
    const Range& last = std::prev(next)->second;
    if (last.begin + last.bytes > memory) return false;
  }
  auto* const begin = static_cast<std::byte*>(memory);
  const auto range =
      ranges_.emplace(begin, Range{begin, bytes, Range::Kind::Registered, device, everywhere}).first;
  if (Settings::get().elsewhere) show_elsewhere(range->second);
  return true;
}

void Memory::unregister_host(void* memory) {
  const std::lock_guard lock(mutex_);
  withdraw(expect(memory, Range::Kind::Registered, "unregistering what is not registered"));
}

std::optional<Range> Memory::find_locked(const std::byte* address, std::size_t bytes) const {
  const auto next = ranges_.upper_bound(address);
  const Range* const range = next == ranges_.begin() ? nullptr : &std::prev(next)->second;
  if (range && address < range->begin + range->bytes) {
    if (bytes > static_cast<std::size_t>(range->begin + range->bytes - address))
      fault("out of bounds", address);
    return *range;
  }
  if (address < begin_ || address >= end_) return std::nullopt;
  const auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin() && address < std::prev(freed)->first + std::prev(freed)->second)
    fault("use after free", address);
  fault("out of bounds", address);
}

std::optional<Range> Memory::find(const void* address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return find_locked(as_bytes(address), bytes);
}

bool Memory::check(const void* address, std::size_t bytes, bool write) const {
  thread_local std::array<Allowed, 8> known;
  thread_local std::size_t oldest = 0;
  const std::byte* const begin = as_bytes(address);
  const int device = executing_device();
  const std::uint64_t generation = generation_.load(std::memory_order_acquire);
  for (const Allowed& it : known)
    if (it.generation == generation && it.device == device && begin >= it.begin && begin + bytes <= it.end) {
      count_access(it.where, bytes, write);
      return it.where != Where::Own;
    }
  const std::lock_guard lock(mutex_);
  const auto range = find_locked(begin, bytes);
  if (!range && kPageable) return true;
  if (!range) fault("foreign pointer", address);
  if (range->seen) fault("address of the host: the device sees this memory elsewhere", address);
  if (!reaches(device, *range)) fault("memory of a device without peer access", address);
  const Where place = where(*range, device);
  known[oldest++ % known.size()] = {range->begin, range->begin + range->bytes, generation, device, place};
  count_access(place, bytes, write);
  return place != Where::Own;
}

bool Memory::is_foreign(const void* address) const {
  const auto range = find(address, 1);
  return !range || where(*range, executing_device()) != Where::Own;
}

int Memory::device_of(const void* memory) const {
  const std::lock_guard lock(mutex_);
  const auto range = ranges_.find(as_bytes(memory));
  return range == ranges_.end() ? -1 : range->second.device;
}

std::size_t Memory::in_use(int device) const {
  std::size_t bytes = 0;
  for (const auto& [begin, range] : ranges_)
    if (range.kind == Range::Kind::Device && range.device == device) bytes += range.bytes;
  return bytes;
}

}  // namespace fakecuda
