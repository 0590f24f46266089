// Group memory: memory that the other processes of the node map, for tensors that are communicated without
// the kernel's copy. One memfd for the process, as large as the limit; only used pages take memory. Freed
// blocks keep up to kWarmBytes of pages.
//
// A forked child reads its parent's pages and gets copies of those that it writes. It allocates and frees
// nothing there; if it needs an arena, it makes its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/memory_file.hpp"

namespace mpi_gdr::shm {

// Thread-safe. own()'s are never destroyed: storages outlive groups and the interpreter.
class Arena {
 public:
  static constexpr std::size_t kWarmBytes = std::size_t{256} << 20;

  // This process's, made at the first call for `limit` bytes; null if that is 0 or making it failed.
  static Arena* own(std::size_t limit);
  // The arena of this memory, this process's or one inherited by fork; or null.
  static Arena* find(const void* memory);
  explicit Arena(std::size_t limit);  // throws Error(System)
  ~Arena() { release(file_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Page-aligned and uninitialised; null for 0 bytes, beyond the limit, or in a forked child.
  void* allocate(std::size_t bytes);
  bool owns(const void* memory) const;
  // `memory`: from allocate(). Allocates nothing. No effect in a forked child.
  void free(void* memory);
  // In a forked child: makes its writes private. Idempotent; takes no lock.
  void leave_parent() noexcept;
  std::size_t in_use() const;  // bytes, in whole pages
  // For ArenaView::of() of other processes.
  std::string ticket() const;

 private:
  // `warm`: bytes of a free block whose pages may be resident, at most.
  struct Free {
    std::size_t bytes = 0, warm = 0;
  };
  using Blocks = std::map<std::size_t, Free>;  // by offset
  void punch(Blocks::iterator block);

  const std::size_t bytes_;
  const int owner_;     // pid
  bool shared_ = true;  // changed by leave_parent() alone, in a child with one thread
  const std::uint64_t nonce_ = draw_nonce();
  const MemoryFile file_;
  std::byte* const memory_ = static_cast<std::byte*>(file_.memory);
  mutable std::mutex mutex_;  // guards all below
  Blocks free_;               // no two are adjacent
  Blocks used_;
  std::size_t in_use_ = 0, warm_ = 0;
};

// Another process's arena, mapped here.
class ArenaView {
 public:
  // One for all groups that share it; null if it cannot be mapped. Thread-safe.
  static std::shared_ptr<ArenaView> of(const std::string& ticket);
  ~ArenaView();
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;

  // The owner's [address, address + bytes) here; null if it is not all in the arena.
  std::byte* at(std::uint64_t address, std::size_t bytes) const {
    if (address < base_ || bytes > bytes_ || address - base_ > bytes_ - bytes) return nullptr;
    return memory_ + (address - base_);
  }

 private:
  ArenaView() = default;
  std::byte* memory_ = nullptr;
  std::uint64_t base_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace mpi_gdr::shm
