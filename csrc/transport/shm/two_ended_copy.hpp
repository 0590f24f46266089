// The copies of long messages, which both ends make: the receiver reads chunks from the sender's memory, from
// the front, the sender writes chunks into the receiver's, from the back. Each end takes its own half of
// every open copy first, so that neither waits for the other between two messages; then whatever is left. The
// receiver opens the copies, and takes all chunks itself where the sender does other things.
//
// A cell in the receiver's area holds which chunks of a message are taken and how many of them the sender has
// copied, each number with the message's id: a rank that comes late finds another id and touches nothing. A
// pair of ranks has as many open copies in each direction as it has cells.
//
// Group memory is mapped, other memory is reached by the kernel's copy (CMA). Where the kernel refuses that,
// a sender leaves all of it to the receiver, and a receiver ends the copy: the message goes another way,
// behind what the sender has copied by then. Threads and errors as in transport.hpp.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/matching.hpp"
#include "transport/shm/node_memory.hpp"
#include "transport/shm/ring.hpp"

namespace mpi_gdr::shm {

// Zero at first. In each the id's lower half stands above the number.
struct alignas(kLine) CopyCell {
  std::atomic<std::uint64_t> taken;   // chunks, by each end
  std::atomic<std::uint64_t> helped;  // chunks that the sender has copied; by the sender, once opened
};
static_assert(sizeof(CopyCell) == kLine);
inline constexpr int kCopyCells = MessageArea::kCopyLines;

// Which chunks an end takes of an open copy: its own, or any.
enum class Share { Own, Any };

// What this rank copies from and for one other.
class TwoEndedCopy {
 public:
  TwoEndedCopy() = default;
  // `in`: the cells of what comes from `peer`; `out`: of what goes there.
  TwoEndedCopy(const NodeMemory& node, int peer, bool kernel_copies, CopyCell* in, CopyCell* out)
      : node_(&node), peer_(peer), kernel_copies_(kernel_copies), in_(in), out_(out) {}

  // --- the receiver ---
  // Whether it can take this message, which has been matched.
  bool can_take(const Transfer& receive) const;
  bool can_open() const { return open_ != kAllOpen; }
  // Gives it a free cell. True if the sender can copy its half: it has to be notified.
  bool open(Transfer& receive);
  // Copies some of an open one within `budget`, which it lessens. All, Refused (by the kernel): closed.
  enum class Taken { Some, All, Refused };
  Taken take(Transfer& receive, Share share, std::size_t& budget);
  // No chunk is taken any more.
  void close(Transfer& receive);

  // --- the sender ---
  // The receiver has opened this one of the sends that are offered, in that cell, and wants it there.
  void opened(int cell, std::uint64_t id, std::uint64_t to) {
    asked_[static_cast<std::size_t>(cell)] = {id, to};
  }
  // Copies some of them, at most so many bytes and a chunk.
  void help(Transfers& offered, std::size_t budget);
  bool may_help() const;

 private:
  // Of a send; id 0: none.
  struct Asked {
    std::uint64_t id = 0, to = 0;
  };
  // False if there is nothing left to take, or the kernel does not copy it.
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
