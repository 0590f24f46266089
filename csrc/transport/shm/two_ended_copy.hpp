// The copy of a long message, which both its ends make, each the chunks that it gets to: its receiver reads
// them from the sender's memory, its sender writes them into the receiver's. The receiver opens the copy and
// waits for no sender: of one that does other things it takes all chunks itself.
//
// A cell in the receiver's area tells which chunks of a message are taken and how many of them the sender has
// copied, each number with the message's id: a rank that comes late, to a message that is over, finds another
// id and touches nothing. A pair of ranks has one cell for each direction, and so one open copy. (With
// several, whole messages fall to one end or the other, and a buffer that is used again and again goes from
// cache to cache.)
//
// Memory is another's by the arena, where it is group memory, else by the kernel's copy (CMA). Where the
// kernel does not copy the memory of one of them, a sender leaves all of it to the receiver, and a receiver
// ends the copy: the message goes another way, behind what the sender has copied by then. Threads and errors
// as in transport.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/matching.hpp"
#include "transport/shm/node_memory.hpp"
#include "transport/shm/ring.hpp"

namespace mpigdr::shm {

// Zero at first. In each the id's lower half stands above the number.
struct alignas(kLine) CopyCell {
  std::atomic<std::uint64_t> taken;   // chunks, by each end
  std::atomic<std::uint64_t> helped;  // chunks that the sender has copied; by the sender, once opened
};
static_assert(sizeof(CopyCell) == kLine);

// What this rank copies from and for one other.
class TwoEndedCopy {
 public:
  TwoEndedCopy() = default;
  // `in`: the cell of what comes from `peer`; `out`: of what goes there.
  TwoEndedCopy(const NodeMemory& node, int peer, bool kernel_copies, CopyCell& in, CopyCell& out)
      : node_(&node), peer_(peer), kernel_copies_(kernel_copies), in_(&in), out_(&out) {}

  // --- the receiver ---
  // Whether it can take this message, which has been matched.
  bool can_take(const Transfer& receive) const;
  bool is_open(const Transfer& receive) const { return open_ == receive.id; }
  // True if the sender can do its part: it has to be notified.
  bool open(const Transfer& receive);
  // Copies some of what is left of `budget`, which it lessens. Refused: the kernel does not copy it; closed.
  enum class Taken { Some, All, Refused };
  Taken take(Transfer& receive, std::size_t& budget);
  // No chunk is taken any more.
  void close(const Transfer& receive);

  // --- the sender ---
  // The receiver has opened this one of the sends that are offered, and wants it there.
  void opened(std::uint64_t id, std::uint64_t to) { asked_ = id, to_ = to; }
  // Copies some of it, at most so many bytes and a chunk.
  void help(Transfers& offered, std::size_t budget);
  bool may_help() const { return asked_ != 0; }

 private:
  // False if there is nothing left to take, or the kernel does not copy it.
  bool help(Transfer& send, std::size_t budget);

  const NodeMemory* node_ = nullptr;
  int peer_ = -1;
  bool kernel_copies_ = false;
  CopyCell *in_ = nullptr, *out_ = nullptr;
  std::uint64_t open_ = 0;            // id of what is received, the last that was opened
  std::uint64_t asked_ = 0, to_ = 0;  // of what is sent; 0: nothing
};

}  // namespace mpigdr::shm
