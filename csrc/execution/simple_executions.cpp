#include "execution/simple_executions.hpp"

#include <algorithm>

#include "common/error.hpp"

namespace mpi_gdr {

MessageExecution::MessageExecution(const MessageCall& call, Transport& transport)
    : call_(call), transport_(transport), source_(call.peer) {}

bool MessageExecution::advance() {
  if (!posted_) {
    posted_ = true;
    std::size_t done = 0;
    do {  // also once for an empty message
      const std::size_t bytes = std::min(call_.bytes - done, kMaxMessageBytes);
      std::byte* const data = static_cast<std::byte*>(call_.data) + done;
      pieces_.push_back({call_.send
                             ? transport_.isend(Channel::PointToPoint, data, bytes, call_.peer, call_.tag)
                             : transport_.irecv(Channel::PointToPoint, data, bytes, call_.peer, call_.tag),
                         bytes});
      done += bytes;
    } while (done < call_.bytes);
    // Returns before testing, since a test may move bytes of other messages and the caller may post more.
    if (std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.request.active; }))
      return false;
  }
  while (!pieces_.empty()) {
    RecvStatus status;
    Piece& piece = pieces_.back();
    if (!transport_.test(piece.request, call_.send ? nullptr : &status)) {
      std::uint64_t moved = 0;  // the first pieces of a long message move first
      for (const Piece& p : pieces_) moved += transport_.bytes_moved(p.request);
      if (moved != moved_) ++rounds_done_;
      moved_ = moved;
      return false;
    }
    const std::size_t expected = piece.bytes;
    pieces_.pop_back();
    if (call_.send) continue;
    source_ = status.source;
    if (status.bytes != expected)
      fail(ErrorCode::Remote, "recv: rank ", status.source, " sent ", status.bytes, " bytes with tag ",
           status.tag, ", the tensor to receive into holds ", expected);
  }
  ++rounds_done_;
  return true;
}

bool MessageExecution::doorbell(Doorbell& bell) const {
  return pieces_.size() == 1 && transport_.doorbell(pieces_.front().request, bell);
}

void MessageExecution::abandon() noexcept {
  for (Piece& piece : pieces_) abandon_quietly(transport_, piece.request);
  pieces_.clear();
}

bool NativeExecution::advance() {
  if (!started_) {
    started_ = true;
    request_ = transport_.istart_native(channel_, collective_);
  }
  if (!transport_.test(request_)) return false;
  ++rounds_done_;
  return true;
}

}  // namespace mpi_gdr
