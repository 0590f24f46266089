// Matches messages and receives by MPI's rules. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "transport/transport.hpp"

namespace mpi_gdr::shm {

struct Transfer;
using Transfers = std::list<Transfer>;  // elements keep their addresses when moved between lists

// A send or receive of this rank, from isend() or irecv() until test() or abandon().
struct Transfer {
  bool send = false, done = false, too_long = false;
  bool copies = false;           // a matched receive of a message that sender and receiver copy together
  bool notified = false;         // if `copies`: the sender has been notified
  bool needs_no_pieces = false;  // a receive without data to copy: its answer completes the send
  int peer = -1;                 // or kAnySource, until it is matched
  int tag = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;    // of the message to send, or of the receive buffer
  std::size_t arrived = 0;  // bytes of the matched message
  std::size_t moved = 0;    // bytes that this rank has copied so far
  std::uint64_t id = 0;     // of a long message, the sender's
  std::uint64_t there = 0;  // of a long message received: its address in the sender's process
  int cell = -1;            // index of the open copy's CopyCell; -1: none
  Transfers* list = nullptr;
  Transfers::iterator place;
};

inline void move(Transfer& transfer, Transfers& to) {  // to the end of `to`
  to.splice(to.end(), *transfer.list, transfer.place);
  transfer.list = &to;
}
inline void end(Transfer& transfer, Transfers& done) {
  transfer.done = true;
  move(transfer, done);
}
// The transfer with this id, usually the first; null: not in the list.
inline Transfer* find(Transfers& transfers, std::uint64_t id) {
  const auto found = std::ranges::find(transfers, id, &Transfer::id);
  return found == transfers.end() ? nullptr : &*found;
}

// A message that came before its receive.
struct Unexpected {
  int source = -1, tag = 0;
  std::size_t bytes = 0;
  bool offered = false;  // a long message, still in the sender's memory
  std::uint64_t id = 0, there = 0;
  std::unique_ptr<std::byte[]> data;
};

class Matching {
 public:
  // The earliest receive that matches, or null.
  Transfer* posted(int source, int tag) {
    for (Transfer& receive : posted_[bucket(tag)])
      if (receive.tag == tag && (receive.peer == source || receive.peer == kAnySource)) return &receive;
    return nullptr;
  }
  void post(Transfer& receive) { move(receive, posted_[bucket(receive.tag)]); }

  // Takes the earliest message that matches; false: none.
  bool take(const Transfer& receive, Unexpected& message) {
    auto& messages = unexpected_[bucket(receive.tag)];
    const auto found = std::ranges::find_if(messages, [&](const Unexpected& m) {
      return m.tag == receive.tag && (receive.peer == kAnySource || receive.peer == m.source);
    });
    if (found == messages.end()) return false;
    message = std::move(*found);
    messages.erase(found);
    return true;
  }
  void keep(Unexpected message) { unexpected_[bucket(message.tag)].push_back(std::move(message)); }

 private:
  // Lists by tag modulo kBuckets, oldest first.
  static constexpr std::size_t kBuckets = 64;
  static std::size_t bucket(int tag) { return static_cast<std::size_t>(tag) % kBuckets; }

  std::array<Transfers, kBuckets> posted_;
  std::array<std::list<Unexpected>, kBuckets> unexpected_;
};

}  // namespace mpi_gdr::shm
