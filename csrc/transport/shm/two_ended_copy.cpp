#include "transport/shm/two_ended_copy.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

namespace mpi_gdr::shm {
namespace {

constexpr std::uint64_t tagged(std::uint64_t id) { return id << 32; }
constexpr std::uint64_t kNumber = 0xffffffff;
// The halves of CopyCell::taken's number: from the front, by the receiver, and from the back, by the sender.
constexpr std::uint64_t kFront = 1, kBack = 1 << 16;
constexpr std::uint64_t front_of(std::uint64_t taken) { return taken & 0xffff; }
constexpr std::uint64_t back_of(std::uint64_t taken) { return taken >> 16 & 0xffff; }

// Chunks of a message, fewer than 1 << 16 (kMaxMessageBytes), half of them for each end. A chunk costs a
// system call, and must be so small that neither end waits long for the other's last.
std::uint64_t chunks_of(std::size_t bytes) {
  constexpr std::size_t kMost = 256 * 1024;
  return 2 * ((bytes + 2 * kMost - 1) / (2 * kMost));
}

struct Piece {
  std::size_t offset, bytes;
};

// Claims the next free chunk of that share, if any; `end`: kFront or kBack.
std::optional<Piece> claim(CopyCell& cell, std::uint64_t end, Share share, std::uint64_t id,
                           std::size_t bytes) {
  const std::uint64_t chunks = chunks_of(bytes);
  std::uint64_t seen = cell.taken.load(std::memory_order_acquire);
  while ((seen & ~kNumber) == tagged(id) && front_of(seen) + back_of(seen) < chunks &&
         (share == Share::Any || (end == kFront ? front_of(seen) : back_of(seen)) < chunks / 2)) {
    // Acquire: the receiver's writes before it opened the copy.
    if (!cell.taken.compare_exchange_weak(seen, seen + end, std::memory_order_acquire)) continue;
    const std::uint64_t chunk = end == kFront ? front_of(seen) : chunks - 1 - back_of(seen);
    const std::size_t offset = chunk * bytes / chunks;
    return Piece{offset, (chunk + 1) * bytes / chunks - offset};
  }
  return std::nullopt;
}

// Leaves the chunk that the sender has claimed last, but not copied, to the receiver.
void return_chunk(CopyCell& cell, std::uint64_t id) {
  std::uint64_t seen = cell.taken.load(std::memory_order_relaxed);
  // Release: the receiver overwrites what the sender has written of it.
  while ((seen & ~kNumber) == tagged(id) && (seen & kNumber) != kNumber &&
         !cell.taken.compare_exchange_weak(seen, seen - kBack, std::memory_order_release,
                                           std::memory_order_relaxed)) {
  }
}

}  // namespace

bool TwoEndedCopy::can_take(const Transfer& receive) const {
  return kernel_copies_ || node_->mapped(peer_, receive.there, receive.arrived);
}

bool TwoEndedCopy::open(Transfer& receive) {
  receive.cell = std::countr_one(open_);
  open_ |= 1u << receive.cell;
  cell_of(receive).helped.store(tagged(receive.id), std::memory_order_relaxed);
  cell_of(receive).taken.store(tagged(receive.id), std::memory_order_release);
  return kernel_copies_ || node_->owns(receive.data);
}

TwoEndedCopy::Taken TwoEndedCopy::take(Transfer& receive, Share share, std::size_t& budget) {
  CopyCell& cell = cell_of(receive);
  while (budget > 0) {
    const std::optional<Piece> piece = claim(cell, kFront, share, receive.id, receive.arrived);
    if (!piece) {
      // Acquire: the sender's copies.
      const std::uint64_t helped = cell.helped.load(std::memory_order_acquire) & kNumber;
      const std::uint64_t own = front_of(cell.taken.load(std::memory_order_relaxed));
      if (own + helped != chunks_of(receive.arrived)) return Taken::Some;
      close(receive);
      return Taken::All;
    }
    const std::uint64_t from = receive.there + piece->offset;
    std::byte* const to = receive.data + piece->offset;
    if (const std::byte* const here = node_->mapped(peer_, from, piece->bytes)) {
      std::memcpy(to, here, piece->bytes);
    } else if (!node_->try_read(peer_, to, from, piece->bytes)) {
      close(receive);
      return Taken::Refused;
    }
    receive.moved += piece->bytes;
    budget -= std::min(budget, piece->bytes);
  }
  return Taken::Some;
}

void TwoEndedCopy::close(Transfer& receive) {
  if (receive.cell < 0) return;
  cell_of(receive).taken.store(tagged(receive.id) | kNumber, std::memory_order_relaxed);
  open_ &= ~(1u << receive.cell);
  receive.cell = -1;
}

bool TwoEndedCopy::may_help() const {
  return std::any_of(asked_.begin(), asked_.end(), [](const Asked& asked) { return asked.id != 0; });
}

void TwoEndedCopy::help(Transfers& offered, std::size_t budget) {
  if (!may_help()) return;
  const auto id = [&](int cell) { return asked_[static_cast<std::size_t>(cell)].id; };
  std::array<int, kCopyCells> oldest_first;
  std::iota(oldest_first.begin(), oldest_first.end(), 0);
  std::ranges::sort(oldest_first, {}, id);
  for (const Share share : {Share::Own, Share::Any})
    for (const int cell : oldest_first) {
      Asked& asked = asked_[static_cast<std::size_t>(cell)];
      if (asked.id == 0 || budget == 0) continue;
      Transfer* const send = find(offered, asked.id);
      if (!send || (!help(*send, cell, share, budget) && share == Share::Any)) asked = {};
    }
}

bool TwoEndedCopy::help(Transfer& send, int cell, Share share, std::size_t& budget) {
  CopyCell& out = out_[cell];
  const std::uint64_t where = asked_[static_cast<std::size_t>(cell)].to;
  if (!kernel_copies_ && !node_->mapped(peer_, where, send.bytes)) return false;
  while (budget > 0) {
    const std::optional<Piece> piece = claim(out, kBack, share, send.id, send.bytes);
    if (!piece) return false;
    const std::uint64_t to = where + piece->offset;
    const std::byte* const from = send.data + piece->offset;
    if (std::byte* const there = node_->mapped(peer_, to, piece->bytes)) {
      std::memcpy(there, from, piece->bytes);
    } else if (!node_->try_write(peer_, to, from, piece->bytes)) {
      return_chunk(out, send.id);
      return false;
    }
    send.moved += piece->bytes;
    std::uint64_t helped = out.helped.load(std::memory_order_relaxed);
    while ((helped & ~kNumber) == tagged(send.id) &&
           !out.helped.compare_exchange_weak(helped, helped + 1, std::memory_order_release,
                                             std::memory_order_relaxed)) {
    }
    budget -= std::min(budget, piece->bytes);
  }
  return true;
}

}  // namespace mpi_gdr::shm
