#include "transport/shm/node_transport.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "transport/shm/matching.hpp"
#include "transport/shm/message_records.hpp"
#include "transport/shm/outgoing.hpp"
#include "transport/shm/ring.hpp"
#include "transport/shm/two_ended_copy.hpp"

namespace mpi_gdr::shm {
namespace {

constexpr std::uint8_t kCarrier = 1;  // of our requests

// Bytes that one test() copies for each peer at most, so that other requests progress, too.
constexpr std::size_t kMostCopied = std::size_t{256} << 10;

class NodeTransport final : public Transport {
 public:
  NodeTransport(std::unique_ptr<Transport> inner, std::shared_ptr<const NodeMemory> node, bool kernel_copies)
      : inner_(std::move(inner)),
        node_(std::move(node)),
        area_(node_->size()),
        peers_(static_cast<std::size_t>(node_->size())) {
    const int self = node_->rank();
    MPI_GDR_CHECK(inner_->rank() == self && inner_->size() == node_->size());
    kernel_copies = kernel_copies && node_->reach() == Reach::All;
    std::byte* const own = node_->messages(self);
    for (int r = 0; r < node_->size(); ++r) {
      std::byte* const theirs = node_->messages(r);
      Peer& peer = peers_[static_cast<std::size_t>(r)];
      peer.out =
          Outgoing({area_.ring(own, r), area_.ring_bytes(), &area_.tail(theirs, self), &area_.sleepers(own)},
                   area_.backlog(theirs, self), done_);
      peer.in =
          RingReader(area_.ring(theirs, self), area_.ring_bytes(), &area_.tail(own, r), &area_.sleepers(own));
      peer.backlog_here = &area_.backlog(own, r);
      peer.copy =
          TwoEndedCopy(*node_, r, kernel_copies, reinterpret_cast<CopyCell*>(area_.copy_lines(own, r)),
                       reinterpret_cast<CopyCell*>(area_.copy_lines(theirs, self)));
    }
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int max_tag() const override { return inner_->max_tag(); }

  Request isend(Channel channel, const void* data, std::size_t bytes, int peer, int tag) override {
    if (channel != Channel::PointToPoint) return inner_->isend(channel, data, bytes, peer, tag);
    check_message(*this, "isend", bytes, peer, tag);
    sends_to_itself_ |= peer == rank();
    Transfer& send = begin(peer, tag, const_cast<void*>(data), bytes);
    send.send = true;
    at(peer).out.send(send);
    if (!send.done) return request(send);
    move(send, spare_);
    return {};
  }

  Request irecv(Channel channel, void* data, std::size_t bytes, int peer, int tag) override {
    if (channel != Channel::PointToPoint) return inner_->irecv(channel, data, bytes, peer, tag);
    check_message(*this, "irecv", bytes, peer == kAnySource ? rank() : peer, tag);
    Transfer& receive = begin(peer, tag, data, bytes);
    Unexpected message;
    if (!matching_.take(receive, message)) {
      matching_.post(receive);
    } else if (message.offered) {
      accept(receive, message.source, message.bytes, message.id, message.there);
    } else {
      add_backlog(at(message.source), -message.bytes);
      deliver(receive, message.source, message.data.get(), message.bytes);
    }
    return request(receive);
  }

  bool test(Request& request, RecvStatus* status) override {
    if (!request.active) return true;
    if (request.carrier != kCarrier) return inner_->test(request, status);
    Transfer& transfer = of(request);
    if (!transfer.done) poll();
    if (!transfer.done) return false;
    request.active = false;
    const Transfer ended = transfer;
    move(transfer, spare_);
    if (ended.too_long)
      fail(ErrorCode::Remote, "recv: rank ", ended.peer, " sent ", ended.arrived, " bytes with tag ",
           ended.tag, ", the tensor to receive into holds ", ended.bytes);
    if (status && !ended.send) *status = {ended.peer, ended.tag, ended.arrived};
    return true;
  }

  void abandon(Request& request) override {
    if (request.carrier != kCarrier) return inner_->abandon(request);
    if (!request.active) return;
    request.active = false;
    Transfer& transfer = of(request);
    if (transfer.copies) at(transfer.peer).copy.close(transfer);
    move(transfer, spare_);
  }

  bool doorbell(const Request& request, Doorbell& bell) const override {
    if (request.carrier != kCarrier) return inner_->doorbell(request, bell);
    const Transfer& transfer = of(request);
    if (transfer.done || transfer.copies) return false;
    // In a group of two any source is the other rank.
    const int who = transfer.peer == kAnySource && size() == 2 ? 1 - rank() : transfer.peer;
    if (who == kAnySource) return false;
    const Peer& peer = at(who);
    std::atomic<std::uint32_t>* const sleepers = &area_.sleepers(node_->messages(who));
    if (peer.copy.may_help()) return false;
    return peer.out.bell(transfer, bell, sleepers) || peer.in.bell(bell, sleepers);
  }

  std::uint64_t bytes_moved(const Request& request) const override {
    return request.carrier == kCarrier ? of(request).moved : inner_->bytes_moved(request);
  }

  bool has_native(Collective collective, DataType dtype, ReduceOp op, std::uint64_t count) const override {
    return inner_->has_native(collective, dtype, op, count);
  }
  Request istart_native(Channel channel, const NativeCollective& collective) override {
    return inner_->istart_native(channel, collective);
  }

  const char* message_path() const override { return "shm"; }
  const Transport& library() const override { return inner_->library(); }
  bool messages_in_memory() const override { return true; }
  void close() noexcept override { inner_->close(); }

 private:
  struct Peer {
    Outgoing out;
    RingReader in;
    TwoEndedCopy copy;
    Transfers copies;  // receives that both ends copy
    // Unexpected bytes from this peer: a hint for its choice between a short message and an offer.
    std::atomic<std::uint64_t>* backlog_here = nullptr;
    std::uint64_t last_offer = 0;  // received from this peer
  };

  Peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  static Transfer& of(const Request& request) { return *reinterpret_cast<Transfer*>(request.handle); }
  static Request request(Transfer& transfer) {
    return {reinterpret_cast<std::uintptr_t>(&transfer), true, kCarrier};
  }

  static void add_backlog(Peer& peer, std::uint64_t bytes) {  // only this rank writes it
    peer.backlog_here->store(peer.backlog_here->load(std::memory_order_relaxed) + bytes,
                             std::memory_order_relaxed);
  }

  Transfer& begin(int peer, int tag, void* data, std::size_t bytes) {
    if (spare_.empty()) spare_.emplace_back();
    const auto place = spare_.begin();
    *place = Transfer{};
    place->peer = peer;
    place->tag = tag;
    place->data = static_cast<std::byte*>(data);
    place->bytes = bytes;
    place->list = &spare_;
    place->place = place;
    return *place;
  }

  void poll() {
    for (int r = 0; r < size(); ++r) {
      if (r == rank() && !sends_to_itself_) continue;
      Peer& peer = at(r);
      read(r, peer);
      peer.out.push();
      copy_in(peer);
      // If both ranks have messages to receive, each copies its own alone: one system call per message.
      if (peer.copies.empty()) peer.copy.help(peer.out.offered, kMostCopied);
    }
  }

  void read(int source, Peer& peer) {
    RecordHeader header;
    std::size_t work = 0;
    while (const std::byte* const payload = work < area_.ring_bytes() ? peer.in.peek(header) : nullptr) {
      // Before pop(): if memory runs out, the record stays.
      handle(source, peer, header, payload);
      peer.in.pop();
      work += record_bytes(header.payload);
    }
    peer.in.ring();
  }

  void handle(int source, Peer& peer, const RecordHeader& header, const std::byte* payload) {
    switch (header.kind) {
      case kEager:
        expect(header.bytes == header.payload, header);
        arrive(source, header, payload);
        return;
      case kOffer:
        // With a repeated id the ends might copy different messages.
        expect(header.payload == sizeof(Where) && header.bytes <= kMaxMessageBytes &&
                   header.id == peer.last_offer + 1,
               header);
        arrive(source, header, payload);
        peer.last_offer = header.id;
        return;
      case kGo:
        if (Transfer* const send = find(peer.out.offered, header.id)) peer.out.stream(*send);
        return;
      case kOpened:
        expect(header.payload == sizeof(Where) && header.tag >= 0 && header.tag < kCopyCells, header);
        peer.copy.opened(header.tag, header.id, where(payload));
        return;
      case kDone:
        if (Transfer* const send = find(peer.out.offered, header.id)) end(*send, done_);
        return;
      case kPiece:
        if (Transfer* const receive = find(peer.out.taking, header.id)) take_piece(*receive, header, payload);
        return;
      default:
        expect(false, header);
    }
  }

  void arrive(int source, const RecordHeader& header, const std::byte* payload) {
    const bool offered = header.kind == kOffer;
    const std::uint64_t there = offered ? where(payload) : 0;
    if (Transfer* const receive = matching_.posted(source, header.tag)) {
      if (offered)
        accept(*receive, source, header.bytes, header.id, there);
      else
        deliver(*receive, source, payload, header.bytes);
      return;
    }
    Unexpected message{source, header.tag, header.bytes, offered, header.id, there, nullptr};
    if (!offered && header.payload > 0) {
      message.data.reset(new std::byte[header.payload]);
      std::memcpy(message.data.get(), payload, header.payload);
    }
    matching_.keep(std::move(message));
    if (!offered) add_backlog(at(source), header.payload);
  }

  void deliver(Transfer& receive, int source, const std::byte* data, std::size_t bytes) {
    receive.peer = source;
    receive.arrived = bytes;
    receive.too_long = bytes > receive.bytes;
    if (!receive.too_long && bytes > 0) std::memcpy(receive.data, data, bytes);
    end(receive, done_);
  }

  void accept(Transfer& receive, int source, std::size_t bytes, std::uint64_t id, std::uint64_t address) {
    receive.peer = source;
    receive.arrived = bytes;
    receive.id = id;
    receive.there = address;
    receive.too_long = bytes > receive.bytes;
    // A message to this rank itself has one end to copy, and goes through the ring.
    if (!receive.too_long && source != rank() && at(source).copy.can_take(receive)) {
      receive.copies = true;
      move(receive, at(source).copies);
      return;
    }
    receive.needs_no_pieces = receive.too_long;  // its sender need not wait
    at(source).out.answer(receive);
  }

  void take_piece(Transfer& receive, const RecordHeader& header, const std::byte* payload) {
    expect(header.payload <= receive.arrived - receive.moved, header);
    std::memcpy(receive.data + receive.moved, payload, header.payload);
    receive.moved += header.payload;
    if (receive.moved == receive.arrived) end(receive, done_);
  }

  void copy_in(Peer& peer) {
    std::size_t budget = kMostCopied;
    for (const Share share : {Share::Own, Share::Any})
      for (auto next = peer.copies.begin(); next != peer.copies.end() && budget > 0;) {
        Transfer& receive = *next++;
        if (receive.cell < 0) {
          if (!peer.copy.can_open()) break;
          // A sleeping sender is not notified: it would wake up too late to help.
          const auto& sleepers = area_.sleepers(node_->messages(rank()));
          receive.notified = peer.copy.open(receive) && sleepers.load(std::memory_order_relaxed) == 0 &&
                             peer.out.notify_opened(receive);
        }
        const TwoEndedCopy::Taken taken =
            peer.copy.take(receive, receive.notified ? share : Share::Any, budget);
        if (taken == TwoEndedCopy::Taken::Some) continue;
        receive.copies = false;
        receive.needs_no_pieces = taken == TwoEndedCopy::Taken::All;
        if (!receive.needs_no_pieces) receive.moved = 0;
        peer.out.answer(receive);
      }
  }

  const std::unique_ptr<Transport> inner_;
  const std::shared_ptr<const NodeMemory> node_;
  const MessageArea area_;
  std::vector<Peer> peers_;  // by rank; this rank's own is for messages to itself
  Matching matching_;
  Transfers done_, spare_;
  bool sends_to_itself_ = false;  // its own ring must be read
};

}  // namespace

std::size_t message_bytes(int size) { return MessageArea(size).bytes(); }

std::unique_ptr<Transport> over_node_memory(std::unique_ptr<Transport> inner,
                                            std::shared_ptr<const NodeMemory> node, bool kernel_copies) {
  if (!node || node->reach() == Reach::None ||
      node->members().size() < static_cast<std::size_t>(node->size()) ||
      node->message_bytes() < message_bytes(node->size()))
    return inner;
  return std::make_unique<NodeTransport>(std::move(inner), std::move(node), kernel_copies);
}

}  // namespace mpi_gdr::shm
