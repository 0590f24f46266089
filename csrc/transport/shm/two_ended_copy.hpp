// Copies long messages from both ends: the receiver reads chunks from the sender's memory, from the front,
// the sender writes chunks into the receiver's, from the back. Each end takes its own half of every open copy
// first, then whatever is left: the receiver takes all where the sender does other things.
//
// A cell in the receiver's area holds which chunks of a message are taken and how many the sender has copied,
// each with the message's id: a late rank finds another id and touches nothing. A pair of ranks has as many
// open copies in each direction as cells. Where the kernel refuses a copy, a sender leaves all of it to the
// receiver, and a receiver closes it: the whole message then goes through the ring.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/matching.hpp"
#include "transport/shm/node_memory.hpp"
#include "transport/shm/ring.hpp"

namespace mpi_gdr::shm {

// Zero at first. The upper half of each word has the lower half of the message's id, the lower half a number.
struct alignas(kLine) CopyCell {
  std::atomic<std::uint64_t> taken;   // chunks, by each end
  std::atomic<std::uint64_t> helped;  // chunks that the sender has copied; written by it, once opened
};
static_assert(sizeof(CopyCell) == kLine);
inline constexpr int kCopyCells = MessageArea::kCopyLines;

// Chunks that an end takes of an open copy: its own, or any.
enum class Share { Own, Any };

// Copies between this rank and one other.
class TwoEndedCopy {
 public:
  TwoEndedCopy() = default;
  // `in`: cells of messages from `peer`; `out`: of messages to it.
  TwoEndedCopy(const NodeMemory& node, int peer, bool kernel_copies, CopyCell* in, CopyCell* out)
      : node_(&node), peer_(peer), kernel_copies_(kernel_copies), in_(in), out_(out) {}

  // --- the receiver ---
  // Whether it can copy this matched message.
  bool can_take(const Transfer& receive) const;
  bool can_open() const { return open_ != kAllOpen; }
  // Assigns a free cell. True if the sender can copy its half: it must be notified.
  bool open(Transfer& receive);
  // Copies part of an open message and reduces `budget`. All, Refused (by the kernel): the copy is closed.
  enum class Taken { Some, All, Refused };
  Taken take(Transfer& receive, Share share, std::size_t& budget);
  void close(Transfer& receive);

  // --- the sender ---
  // The receiver has opened this offered send, in that cell, with that destination.
  void opened(int cell, std::uint64_t id, std::uint64_t to) {
    asked_[static_cast<std::size_t>(cell)] = {id, to};
  }
  // Copies at most `budget` bytes, rounded up to whole chunks.
  void help(Transfers& offered, std::size_t budget);
  bool may_help() const;

 private:
  // id 0: none.
  struct Asked {
    std::uint64_t id = 0, to = 0;
  };
  // False: nothing left to take, or the kernel does not copy it.
  bool help(Transfer& send, int cell, Share share, std::size_t& budget);
  CopyCell& cell_of(const Transfer& receive) const { return in_[receive.cell]; }

  const NodeMemory* node_ = nullptr;
  int peer_ = -1;
  bool kernel_copies_ = false;
  CopyCell *in_ = nullptr, *out_ = nullptr;
  static constexpr std::uint32_t kAllOpen = (1u << kCopyCells) - 1;
  std::uint32_t open_ = 0;                 // bits, of the cells of `in`
  std::array<Asked, kCopyCells> asked_{};  // by cell of `out`
};

}  // namespace mpi_gdr::shm
