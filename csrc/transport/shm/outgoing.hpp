// Writes the ring from this rank to another: messages in order, answers to offers, pieces of long messages.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>

#include "transport/shm/matching.hpp"
#include "transport/shm/message_records.hpp"
#include "transport/shm/ring.hpp"

namespace mpi_gdr::shm {

class Outgoing {
 public:
  Outgoing() = default;
  // `backlog`: unexpected bytes at the receiver. `done`: list for completed transfers.
  Outgoing(const RingWriter& ring, const std::atomic<std::uint64_t>& backlog, Transfers& done)
      : ring_(ring), backlog_(&backlog), done_(&done) {}

  Transfers offered;  // sends whose offer is written
  Transfers taking;   // receives whose pieces have been asked for

  void send(Transfer& send) {
    move(send, queued_);
    push_queued();
  }
  void answer(Transfer& receive) {
    move(receive, answers_);
    push_answers();
  }
  // An offered send goes through the ring as a whole, even if this rank has copied a part.
  void stream(Transfer& send) {
    send.moved = 0;
    move(send, streams_);
  }
  // Notifies the sender that this copy is open. False: no room; this rank can copy all of it.
  bool notify_opened(const Transfer& receive) {
    return publish_where(ring_, receive.data, {.id = receive.id, .tag = receive.cell, .kind = kOpened});
  }

  void push() {
    push_answers();
    push_queued();
    push_streams();
  }
  // False: the transfer does not wait for room in the ring.
  bool bell(const Transfer& transfer, Doorbell& bell, std::atomic<std::uint32_t>* sleepers) const {
    if (transfer.list != &queued_ && transfer.list != &answers_ && transfer.list != &streams_) return false;
    bell = ring_.bell(sleepers);
    return true;
  }

 private:
  // Up to this length messages are copied two or three times; longer ones cost a round trip instead.
  static constexpr std::size_t kMostEager = 128 * 1024;
  // A receiver that holds this many unexpected bytes gets more of them in short messages only.
  static constexpr std::size_t kMostBacklog = std::size_t{1} << 20, kShort = std::size_t{16} << 10;

  std::size_t piece() const { return ring_.bytes() / 8; }

  void push_answers() {
    while (!answers_.empty() && ring_.reserve(0)) {
      Transfer& receive = answers_.front();
      ring_.publish({.id = receive.id, .kind = receive.needs_no_pieces ? kDone : kGo});
      receive.needs_no_pieces ? end(receive, *done_) : move(receive, taking);
    }
  }

  void push_queued() {
    while (!queued_.empty()) {
      Transfer& send = queued_.front();
      RecordHeader header{.bytes = send.bytes, .tag = send.tag};
      if (send.bytes <= std::min(kMostEager, piece()) &&
          (send.bytes <= kShort || backlog_->load(std::memory_order_relaxed) < kMostBacklog)) {
        std::byte* const payload = ring_.reserve(send.bytes);
        if (!payload) return;
        if (send.bytes > 0) std::memcpy(payload, send.data, send.bytes);
        header.kind = kEager;
        header.payload = static_cast<std::uint32_t>(send.bytes);
        ring_.publish(header);
        end(send, *done_);
      } else {
        header.kind = kOffer;
        header.id = last_id_ + 1;
        if (!publish_where(ring_, send.data, header)) return;
        send.id = ++last_id_;
        move(send, offered);
      }
    }
  }

  void push_streams() {
    for (std::size_t work = 0; !streams_.empty() && work < ring_.bytes();) {
      Transfer& send = streams_.front();
      const std::size_t bytes = std::min(send.bytes - send.moved, piece());
      std::byte* const payload = ring_.reserve(bytes);
      if (!payload) return;
      std::memcpy(payload, send.data + send.moved, bytes);
      ring_.publish(
          {.id = send.id, .bytes = send.bytes, .payload = static_cast<std::uint32_t>(bytes), .kind = kPiece});
      send.moved += bytes;
      work += bytes;
      if (send.moved == send.bytes) end(send, *done_);
    }
  }

  RingWriter ring_;
  const std::atomic<std::uint64_t>* backlog_ = nullptr;  // a hint, for choosing a short message or an offer
  Transfers* done_ = nullptr;
  Transfers answers_;          // receives whose Go or Done is to be written
  Transfers queued_;           // sends not written yet
  Transfers streams_;          // sends through the ring, one after the other
  std::uint64_t last_id_ = 0;  // of the sends that were offered
};

}  // namespace mpi_gdr::shm
