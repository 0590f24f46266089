// Memory operations of translated code: every access, fence and barrier of a kernel passes here.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "gpu/fault.hpp"
#include "gpu/mutant.hpp"
#include "gpu/ptx_types.hpp"
#include "gpu/thread.hpp"

namespace fakecuda {

enum class Order { Weak, Volatile };  // Volatile: like relaxed at system scope; may be a poll
enum class Scope { Block, Device, System };

extern const MemoryRules* memory_rules;

// Whether a mutant skips `thread`'s current instruction (mutant.hpp).
inline bool left_out(std::string_view kind, const Thread& thread) {
  return mutating() && left_out(kind, thread.ptx_file + (":" + std::to_string(thread.ptx_number)));
}

// Weak memory (weak_memory.hpp). `foreign`: of the host or of another device.
void weak_load(const Thread& thread, Order order, ptx::u64 address, void* out, std::size_t bytes,
               bool foreign);
void weak_store(Thread& thread, Order order, ptx::u64 address, const void* in, std::size_t bytes);
void weak_fence(Thread& thread, Scope scope);

namespace ptx {

// PTX requires vectors to be aligned to their size.
template <typename T, std::size_t kCount>
void check_aligned(u64 address) {
  if (address % (sizeof(T) * kCount) != 0) fault("misaligned address", reinterpret_cast<void*>(address));
}

// Returns whether the memory belongs to the host or to another device.
template <typename T, std::size_t kCount>
bool begin_access(Thread& thread, u64 address, bool write) {
  check_aligned<T, kCount>(address);
  thread.count_access();
  return memory_rules && memory_rules->check(reinterpret_cast<void*>(address), sizeof(T) * kCount, write);
}

// The order that a mutant leaves.
template <Order kOrder>
Order order_of(const Thread& thread) {
  return kOrder == Order::Volatile && !left_out("volatile", thread) ? Order::Volatile : Order::Weak;
}

// ---- global memory ----

template <Order kOrder, typename T, std::size_t kCount>
std::array<Value<T>, kCount> load(Thread& thread, u64 address) {
  if constexpr (kOrder == Order::Volatile) thread.poll();
  const bool foreign = begin_access<T, kCount>(thread, address, false);
  std::array<Value<T>, kCount> out;
  if (thread.stores) [[unlikely]] {
    weak_load(thread, order_of<kOrder>(thread), address, &out, sizeof out, foreign);
    return out;
  }
  const auto* const from = reinterpret_cast<const Value<T>*>(address);
  for (std::size_t i = 0; i < kCount; ++i) out[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
  return out;
}

// A vector is stored in pieces of at most 4 bytes, in any order, and others may run in between.
template <Order kOrder, typename T, typename... Registers>
void store(Thread& thread, u64 address, Registers... values) {
  constexpr std::size_t kCount = sizeof...(values), kBytes = sizeof(T) * kCount;
  using Piece = Unsigned<kCount == 1 ? kBytes : std::min<std::size_t>(kBytes, 4)>;
  constexpr u32 kPieces = kBytes / sizeof(Piece);
  begin_access<T, kCount>(thread, address, true);
  const auto pieces = std::bit_cast<std::array<Piece, kPieces>>(
      std::array<Value<T>, kCount>{static_cast<Value<T>>(values)...});
  const Order order = thread.stores ? order_of<kOrder>(thread) : kOrder;
  const u32 first = thread.accesses_left() % kPieces;
  for (u32 i = 0; i < kPieces; ++i) {
    if (i != 0) thread.count_access();
    const u32 at = (first + i) % kPieces;
    auto* const to = reinterpret_cast<Piece*>(address) + at;
    if (thread.stores) [[unlikely]]
      weak_store(thread, order, reinterpret_cast<u64>(to), &pieces[at], sizeof(Piece));
    else
      __atomic_store_n(to, pieces[at], __ATOMIC_RELAXED);
  }
}

template <typename T>
Value<T> add_atomically(Thread& thread, u64 address, Value<T> value) {
  begin_access<T, 1>(thread, address, true);
  return __atomic_fetch_add(reinterpret_cast<Value<T>*>(address), value, __ATOMIC_RELAXED);
}

template <Scope kScope>
void fence(Thread& thread) {
  if (left_out("fence", thread)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (thread.stores) weak_fence(thread, kScope);
}

inline void barrier(Thread& thread) {
  if (!left_out("barrier", thread)) thread.barrier();
}

// ---- the block's shared memory and the launch's parameters, both by offsets ----

template <typename T, std::size_t kCount>
void check_within(u64 at, std::uint32_t bytes, const char* rule) {
  check_aligned<T, kCount>(at);
  if (at > bytes || sizeof(T) * kCount > bytes - at) fault(rule, reinterpret_cast<void*>(at));
}

template <typename T, std::size_t kCount>
std::array<Value<T>, kCount> load_param(const Thread& thread, u64 at) {
  check_within<T, kCount>(at, thread.kernel.param_bytes, "out of bounds of the parameters");
  std::array<Value<T>, kCount> out;
  std::memcpy(&out, thread.params + at, sizeof out);
  return out;
}

template <typename T, std::size_t kCount>
std::array<Value<T>, kCount> load_shared(const Thread& thread, u64 at) {
  check_within<T, kCount>(at, thread.kernel.shared_bytes, "out of bounds of shared memory");
  std::array<Value<T>, kCount> out;
  std::memcpy(&out, thread.shared + at, sizeof out);
  return out;
}

template <typename T, typename... Registers>
void store_shared(Thread& thread, u64 at, Registers... values) {
  check_within<T, sizeof...(values)>(at, thread.kernel.shared_bytes, "out of bounds of shared memory");
  const Value<T> in[] = {static_cast<Value<T>>(values)...};
  std::memcpy(thread.shared + at, &in, sizeof in);
}

}  // namespace ptx
}  // namespace fakecuda
