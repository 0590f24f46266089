// Flags in host memory that a group's ranks on one node share: who has called, ended, abandoned an operation.
// Each rank owns a segment (common/memory_file.hpp), which the others map.
//
// A flag has one writer and only grows: its value is generation << 32 | number, so that a slot is reused
// without a reset. An operation uses one slot, the same on all ranks. Graphs have a slot of their own, whose
// generation is the number of the replay, counted by the device.
//
// Threads: constructor, attach() and destructor are serialised by the caller. Everything else is thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace mpi_gdr::ipc {

inline constexpr int kSlots = 2;
inline constexpr int kGraphSlot = kSlots;  // behind the others, of the same size

// A cache line, because different ranks write adjacent words.
struct alignas(64) Line {
  Flag value, since;
};

// Lets the others map this rank's memory; plain bytes, for an all_gather.
struct Ticket {
  std::int64_t pid = 0;
  std::int32_t file = -1;  // of the flags; -1: this rank shares nothing
  std::uint32_t handle_bytes = 0;
  std::uint64_t nonce = 0;
  std::array<char, 192> handle{};   // of the staging memory
  std::array<char, 64> identity{};  // of the device
};

class NodeFlags {
 public:
  // `members`: the group's rank of each rank here; empty: the same. `more`: bytes of each segment behind the
  // flags. Throws System.
  NodeFlags(int rank, int size, std::vector<int> members, std::size_t more = 0);
  ~NodeFlags();
  NodeFlags(const NodeFlags&) = delete;
  NodeFlags& operator=(const NodeFlags&) = delete;

  // With pid, file and nonce only.
  Ticket ticket() const;
  // Maps the flags of another rank. False if they cannot be mapped: another PID namespace.
  bool attach(int owner, const Ticket& theirs);

  int rank() const { return rank_; }
  int size() const { return size_; }
  template <typename F>
  void each_peer(const F& f) const {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) f(r);
  }
  int member(int rank) const { return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)]; }

  // Flags in `owner`'s segment, written by `writer`.
  Flag& notices(int owner, int slot, int writer) const { return flag(owner, slot, 2, writer); }
  Flag& ended(int owner, int slot, int writer) const { return flag(owner, slot, 0, writer); }
  // By the host of `writer`, when it issues an operation: generation << 32 | hash of the call.
  Flag& called(int owner, int slot, int writer) const { return flag(owner, slot, 1, writer); }
  // By the host of `writer`, before it releases its device after a failure: 1 more than the first use of the
  // slots whose results are invalid, see concerns().
  Flag& failed(int owner, int writer) const { return flag(owner, 0, 3, writer); }
  // The same when it could not launch all of an operation: its device will not raise the flags of the rest.
  Flag& refused(int owner, int writer) const { return flag(owner, 0, 4, writer); }
  // Set `failed`, or `refused`, on all ranks, from the first use that has not ended well. Any thread.
  void publish_failed() const noexcept { publish(3); }
  void publish_refused() const noexcept { publish(4); }
  // This use and those before it have ended well. Progress role.
  void note_end(std::uint64_t use) const noexcept {
    if (use >= ended_well_.load(std::memory_order_relaxed))
      ended_well_.store(use + 1, std::memory_order_release);
  }
  // Whether a word of failed() or refused() includes use `use`.
  static bool concerns(const Flag& word, std::uint64_t use) {
    const std::uint64_t from = word.load(std::memory_order_acquire);
    return from != 0 && use + 1 >= from;
  }

 protected:
  // By the host of `writer`, when it has unmapped `owner`'s memory.
  Flag& detached(int owner, int writer) const { return flag(owner, 0, 5, writer); }
  // By this rank's host for its device.
  Flag& released() const { return flag(rank_, kGraphSlot, 1, rank_); }
  void* segment(int owner) const { return segments_[static_cast<std::size_t>(owner)]; }
  std::size_t segment_bytes() const { return segment_bytes_; }
  std::uint64_t nonce() const { return nonce_; }
  std::byte* behind_flags(int owner) const {
    return reinterpret_cast<std::byte*>(lines_[static_cast<std::size_t>(owner)]) + flag_bytes();
  }
  void keep_mapped();  // by the destructor, too

 private:
  static constexpr int kKinds = 6;
  std::size_t flag_bytes() const;
  void open(int owner, void* memory);
  Flag& flag(int owner, int slot, int kind, int writer) const {
    const auto line = (static_cast<std::size_t>(slot) * kKinds + static_cast<std::size_t>(kind)) *
                          static_cast<std::size_t>(size_) +
                      static_cast<std::size_t>(writer);
    return lines_[static_cast<std::size_t>(owner)][line].value;
  }
  void publish(int kind) const noexcept {
    const std::uint64_t from = ended_well_.load(std::memory_order_acquire) + 1;
    for (int r = 0; r < size_; ++r) {
      std::uint64_t none = 0;  // the first value covers more uses
      flag(r, 0, kind, rank_).compare_exchange_strong(none, from, std::memory_order_acq_rel);
    }
  }

  const int rank_, size_;
  const std::size_t segment_bytes_;  // a page with the nonce, the flags, what follows them
  const std::uint64_t nonce_;
  const std::vector<int> members_;
  int file_ = -1;
  std::vector<void*> segments_;                       // by rank, null: not mapped
  std::vector<Line*> lines_;                          // by rank, in the segments
  mutable std::atomic<std::uint64_t> ended_well_{0};  // uses of the slots
};

}  // namespace mpi_gdr::ipc
