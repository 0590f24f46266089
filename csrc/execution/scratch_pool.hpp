// Scratch memory, kept between operations: otherwise every bucket of every training step would fault its
// pages in anew. Thread-safe. Blocks are 4096-byte aligned and uninitialised.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace mpi_gdr {

class ScratchPool {
 public:
  ScratchPool() = default;
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;
  ~ScratchPool() { drop_kept(); }

  // Owns one block and returns it when destroyed, which must be before the pool. Empty for 0 bytes.
  class Block {
   public:
    Block() = default;
    Block(ScratchPool* pool, void* memory, std::size_t bytes) : memory_(memory, {pool, bytes}) {}
    void* get() const { return memory_.get(); }
    // After a failed operation a peer may still write here: the memory is never used again.
    void leak() noexcept { (void)memory_.release(); }

   private:
    struct Release {
      ScratchPool* pool;
      std::size_t bytes;
      void operator()(void* memory) const noexcept { pool->release(memory, bytes); }
    };
    std::unique_ptr<void, Release> memory_;
  };

  // Throws NoMemory.
  Block take(std::size_t bytes);

 private:
  void release(void* memory, std::size_t bytes) noexcept;
  void drop_kept() noexcept;

  static constexpr std::size_t kMostKept = std::size_t{256} << 20;  // bytes kept for reuse at most
  std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;  // by size
  std::size_t kept_ = 0;
};

}  // namespace mpi_gdr
