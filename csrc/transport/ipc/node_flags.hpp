// Flags in host memory that a group's ranks on one node share: who has called, ended, abandoned an operation.
// Each rank owns an area of that memory, which the others have mapped.
//
// A flag has one writer and only grows. Flags of a slot are generation << 32 | number, so that it is reused
// without a reset. An operation uses one slot, the same on all ranks. Graphs have a slot of their own, whose
// generation is the number of the replay, counted by the device.
//
// Threads: any, unless stated otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/keep_until_exit.hpp"
#include "device/device.hpp"

namespace mpi_gdr::ipc {

inline constexpr int kSlots = 2;
inline constexpr int kGraphSlot = kSlots;  // behind the others, of the same size

// A cache line, because different ranks write adjacent words.
struct alignas(64) Line {
  Flag value, since;
};

// Where this process has mapped the area of each rank of the node, by rank: whole pages, zero at first.
struct Areas {
  std::vector<std::byte*> of;
  std::shared_ptr<const void> owner;  // keeps them mapped
};

// Handle of a device allocation, with which other ranks map it.
struct Handle {
  std::uint64_t length = 0;  // 0: it cannot be shared
  std::array<char, 192> bytes{};
  // A handle that is too long cannot be shared.
  void set(const std::string& handle) {
    length = handle.copy(bytes.data(), handle.size() <= bytes.size() ? handle.size() : 0);
  }
  std::string get() const { return {bytes.data(), std::min<std::size_t>(length, bytes.size())}; }
};

// What a rank's device offers, at the start of its area. Read after all ranks agree that it is written.
struct Offer {
  std::array<char, 64> identity{};  // of the device
  int version = 0;                  // of NCCL
  std::array<char, 128> id{};       // of its communicator, from the first rank
  Handle staging;
  std::uint64_t seed = 0;  // of the test pattern in staging memory
};

class NodeFlags {
 public:
  // The size of an area, in whole pages.
  static constexpr std::size_t bytes(int size) {
    const std::size_t lines = (kGraphSlot + 1) * kKinds * static_cast<std::size_t>(size);
    return kPage + (lines * sizeof(Line) + kPage - 1) / kPage * kPage;
  }
  // `members[r]`: the rank in the group of this node's rank r; empty: the two are equal.
  NodeFlags(int rank, Areas areas, std::vector<int> members = {})
      : rank_(rank),
        size_(static_cast<int>(areas.of.size())),
        members_(std::move(members)),
        areas_(std::move(areas)) {}
  NodeFlags(const NodeFlags&) = delete;
  NodeFlags& operator=(const NodeFlags&) = delete;

  Offer& offer(int owner) const { return *reinterpret_cast<Offer*>(area(owner)); }
  int rank() const { return rank_; }
  int size() const { return size_; }
  template <typename F>
  void each_peer(const F& f) const {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) f(r);
  }
  int member(int rank) const { return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)]; }

  // Flags in `owner`'s area, written by `writer`.
  Flag& notices(int owner, int slot, int writer) const { return flag(owner, slot, 2, writer); }
  Flag& ended(int owner, int slot, int writer) const { return flag(owner, slot, 0, writer); }
  // By the host of `writer`, when it issues an operation: generation << 32 | hash of the call.
  Flag& called(int owner, int slot, int writer) const { return flag(owner, slot, 1, writer); }
  // By the host of `writer`, before it releases its device after a failure: 1 + the first use of the slots
  // that has invalid results, see concerns().
  Flag& failed(int owner, int writer) const { return flag(owner, 0, 3, writer); }
  // As failed(), if the host could not launch all of an operation: its device will not raise the other flags.
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
  // By this rank's host, to end the waits of replays on its device.
  Flag& released() const { return flag(rank_, kGraphSlot, 1, rank_); }
  std::byte* area(int owner) const { return areas_.of[static_cast<std::size_t>(owner)]; }
  // For as long as the process lives.
  void keep_mapped() { keep_until_exit(areas_.owner); }

 private:
  static constexpr std::size_t kPage = 4096;  // of the offer
  static_assert(sizeof(Offer) <= kPage);
  static constexpr int kKinds = 6;
  Flag& flag(int owner, int slot, int kind, int writer) const {
    const auto line = (static_cast<std::size_t>(slot) * kKinds + static_cast<std::size_t>(kind)) *
                          static_cast<std::size_t>(size_) +
                      static_cast<std::size_t>(writer);
    return reinterpret_cast<Line*>(area(owner) + kPage)[line].value;
  }
  void publish(int kind) const noexcept {
    const std::uint64_t from = ended_well_.load(std::memory_order_acquire) + 1;
    for (int r = 0; r < size_; ++r) {
      std::uint64_t none = 0;  // an earlier value covers more uses
      flag(r, 0, kind, rank_).compare_exchange_strong(none, from, std::memory_order_acq_rel);
    }
  }

  const int rank_, size_;
  const std::vector<int> members_;
  const Areas areas_;
  mutable std::atomic<std::uint64_t> ended_well_{0};  // uses of the slots
};

}  // namespace mpi_gdr::ipc
