// Group memory: memory of this process that the other processes of the node map, for tensors that are
// communicated: they reach it without the kernel's copy.
//
// One memfd for the whole process, mapped once here and once by each process that shares a group with it. It
// is as large as the limit; only pages in use take memory. Freed blocks keep their pages up to kWarmBytes.
//
// A forked child reads its parent's pages, and gets a copy of those that it writes to. It gives out and frees
// nothing of that arena; if it needs one, it makes its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/memory_file.hpp"

namespace mpi_gdr::shm {

// Thread-safe. Never destroyed: storages outlive groups and the interpreter.
class Arena {
 public:
  static constexpr std::size_t kWarmBytes = std::size_t{256} << 20;

  // This process's, made at the first call for `limit` bytes; null if that is 0 or the system has none.
  static Arena* own(std::size_t limit);
  // The one that has given out this memory, this process's or one inherited by fork; or null.
  static Arena* find(const void* memory);
  explicit Arena(std::size_t limit);  // throws Error(System)
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Page-aligned and uninitialised; null if the limit is reached, or in a forked child.
  void* allocate(std::size_t bytes);
  bool owns(const void* memory) const;
  // What allocate() returned. Allocates nothing. Does nothing in a forked child.
  void free(void* memory);
  // In a forked child: what it writes stays there. Idempotent; takes no lock.
  void leave_parent() noexcept;
  std::size_t in_use() const;  // bytes, in whole pages
  // How others find it, by ArenaView.
  std::string ticket() const;

 private:
  // Pages of free blocks that may still be there, at most.
  struct Free {
    std::size_t bytes = 0, warm = 0;
  };
  using Blocks = std::map<std::size_t, Free>;  // by offset
  void punch(Blocks::iterator block);

  const std::size_t bytes_;
  const int owner_;     // pid
  bool shared_ = true;  // with the owner's peers; by leave_parent() alone, in a child with one thread
  const std::uint64_t nonce_ = draw_nonce();
  const MemoryFile file_;
  std::byte* const memory_ = static_cast<std::byte*>(file_.memory);
  mutable std::mutex mutex_;  // all below
  Blocks free_;               // no two are adjacent
  Blocks used_;
  std::size_t in_use_ = 0, warm_ = 0;
};

// Another process's arena, as this process sees it.
class ArenaView {
 public:
  // The same one for all groups that share it; null if it cannot be mapped. Thread-safe.
  static std::shared_ptr<ArenaView> of(const std::string& ticket);
  ~ArenaView();
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;

  // Where the owner's [address, address + bytes) stands here; null if it is not all in the arena.
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
