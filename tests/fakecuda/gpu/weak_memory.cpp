#include "gpu/weak_memory.hpp"

#include <algorithm>
#include <cstring>

namespace fakecuda {
namespace {

WeakMemory* weak = nullptr;

}  // namespace

WeakMemory* weak_memory() { return weak; }

void weaken_memory() {
  static auto& leaked = *new WeakMemory;  // for kernels that still run at exit
  weak = &leaked;
}

std::uint64_t& WeakMemory::executed() {
  thread_local std::uint64_t number = 0;
  return number;
}

std::uint64_t WeakMemory::submit() {
  const std::lock_guard lock(mutex_);
  return ++submitted_;
}

void WeakMemory::read(const void* from, void* to, std::size_t bytes, bool cached) {
  const std::lock_guard lock(mutex_);
  if (cached)
    read_cached(static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes);
  else
    read_memory(from, to, bytes);
  stores_.lay_over(from, to, bytes);
}

void WeakMemory::read_cached(const std::byte* from, std::byte* to, std::size_t bytes) {
  while (bytes != 0) {
    const std::size_t first = reinterpret_cast<std::uintptr_t>(from) % kLine;
    const std::byte* const begin = from - first;
    const auto [found, is_new] = lines_.try_emplace(reinterpret_cast<std::uintptr_t>(begin));
    Line& line = found->second;
    if (is_new || line.read_at < executed()) {
      read_memory(begin, line.bytes.data(), kLine);
      line.read_at = submitted_;
    }
    const std::size_t some = std::min(kLine - first, bytes);
    std::memcpy(to, &line.bytes[first], some);
    from += some;
    to += some;
    bytes -= some;
  }
}

void WeakMemory::write(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  stores_.put(to, from, bytes);
  if (stores_.words() > kMostWords) drain();
}

void WeakMemory::take(StoreBuffer& stores) {
  if (stores.empty()) return;
  const std::lock_guard lock(mutex_);
  stores.drain_into(stores_);
  if (stores_.words() > kMostWords) drain();
}

void WeakMemory::write_through(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  stores_.drop(to, bytes);
  write_memory(to, from, bytes);
  forget(to, bytes);
}

void WeakMemory::drain() {
  stores_.drain([&](void* to, const void* from, std::size_t bytes) {
    write_memory(to, from, bytes);
    forget(to, bytes);
  });
}

// Drops cached lines that the device itself has written.
void WeakMemory::forget(const void* memory, std::size_t bytes) {
  if (lines_.empty()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  for (std::uintptr_t line = begin / kLine * kLine; line < begin + bytes; line += kLine) lines_.erase(line);
}

void WeakMemory::release() {
  const std::lock_guard lock(mutex_);
  drain();
}

void WeakMemory::acquire() {
  const std::lock_guard lock(mutex_);
  lines_.clear();
}

}  // namespace fakecuda
