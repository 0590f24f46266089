// An allocator that reuses memory of objects made for each operation: malloc's cache holds few blocks of a
// size, none above 1 KiB. Thread-safe, also in forked children: uses malloc instead of waiting for the lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

namespace mpi_gdr {

// Off under sanitizers, so that they find uses after free.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kRecycles = false;
#else
inline constexpr bool kRecycles = true;
#endif

// Keeps at most 128 blocks, for good.
template <std::size_t Bytes>
class RecycledMemory {
 public:
  static void* take() {
    void* memory = nullptr;
    if (!in_use_.test_and_set(std::memory_order_acquire)) {
      if (count_ > 0) memory = kept_[--count_];
      in_use_.clear(std::memory_order_release);
    }
    return memory ? memory : ::operator new(Bytes);
  }
  static void put(void* memory) noexcept {
    if (!in_use_.test_and_set(std::memory_order_acquire)) {
      const bool room = count_ < kMost;
      if (room) kept_[count_++] = memory;
      in_use_.clear(std::memory_order_release);
      if (room) return;
    }
    ::operator delete(memory);
  }

 private:
  static constexpr std::size_t kMost = kRecycles ? 128 : 0;
  static inline std::atomic_flag in_use_;
  static inline std::size_t count_ = 0;          // guarded by in_use_
  static inline std::array<void*, 128> kept_{};  // guarded by in_use_
};

template <typename T>
struct Recycled {
  using value_type = T;
  Recycled() = default;
  template <typename U>
  Recycled(const Recycled<U>&) {}

  T* allocate(std::size_t n) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return n == 1 ? static_cast<T*>(RecycledMemory<sizeof(T)>::take()) : std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    n == 1 ? RecycledMemory<sizeof(T)>::put(memory) : std::allocator<T>().deallocate(memory, n);
  }
  friend bool operator==(Recycled, Recycled) { return true; }
};

}  // namespace mpi_gdr
