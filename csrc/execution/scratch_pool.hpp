// Scratch memory of operations, kept between them: a fresh block would be paged in anew by every bucket of
// every training step. Thread-safe. Blocks are 64-byte aligned and uninitialised.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace mpigdr {

class ScratchPool {
 public:
  ScratchPool() = default;
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;
  ~ScratchPool();

  // Owns one block; gives it back when destroyed. Empty for 0 bytes.
  class Block {
   public:
    Block() = default;
    Block(ScratchPool* pool, void* memory, std::size_t bytes) : pool_(pool), memory_(memory), bytes_(bytes) {}
    Block(Block&& other) noexcept { swap(other); }
    Block& operator=(Block&& other) noexcept {
      swap(other);
      return *this;
    }
    ~Block();
    void* get() const { return memory_; }
    // After a failed operation a peer may still write here: the memory is never used again.
    void leak() noexcept { memory_ = nullptr; }

   private:
    void swap(Block& other) noexcept;
    ScratchPool* pool_ = nullptr;
    void* memory_ = nullptr;
    std::size_t bytes_ = 0;
  };

  // Throws NoMemory.
  Block take(std::size_t bytes);

 private:
  void give_back(void* memory, std::size_t bytes) noexcept;
  void drop_kept() noexcept;

  static constexpr std::size_t kMostKept = std::size_t{256} << 20;  // bytes kept for reuse at most
  std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;  // by size
  std::size_t kept_ = 0;
};

}  // namespace mpigdr
