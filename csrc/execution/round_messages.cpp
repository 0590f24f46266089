#include "execution/round_messages.hpp"

#include <algorithm>

#include "common/error.hpp"
#include "execution/local_step.hpp"

namespace mpi_gdr {

void RoundMessages::post(const Schedule& schedule, const Round& round, int lane, const Binding& binding,
                         Transport& transport) {
  MPI_GDR_CHECK(pending_.empty());
  const int tag = binding.tag_base + lane;
  acknowledge_ = binding.acknowledged;
  channel_ = binding.channel;
  acknowledgement_tag_ = tag + kMaxLanes;
  // Receives first: a message that finds its receive posted is not buffered as unexpected.
  const auto messages = [&](StepKind kind, const auto& post_one) {
    for (const Step& step : schedule.steps_of(round)) {
      if (step.kind != kind) continue;
      const Slice& slice = kind == StepKind::Recv ? step.dst : schedule.source(step);
      const std::size_t total = byte_count(slice, binding);
      for (std::size_t done = 0; done < total; done += kMaxMessageBytes)
        post_one(slice, step.peer, done, std::min(total - done, kMaxMessageBytes));
    }
  };
  messages(StepKind::Recv, [&](const Slice& slice, int peer, std::size_t at, std::size_t bytes) {
    MPI_GDR_CHECK(slice.buffer != Buffer::Input);
    auto* const data = const_cast<std::byte*>(source_address(slice, binding)) + at;
    pending_.push_back({transport.irecv(channel_, data, bytes, peer, tag), peer, bytes, Kind::Recv});
  });
  messages(StepKind::Send, [&](const Slice& slice, int peer, std::size_t at, std::size_t bytes) {
    // Its acknowledgement is empty.
    if (acknowledge_)
      pending_.push_back({transport.irecv(channel_, nullptr, 0, peer, acknowledgement_tag_), peer, 0,
                          Kind::Acknowledgement});
    const std::byte* const data = source_address(slice, binding) + at;
    pending_.push_back({transport.isend(channel_, data, bytes, peer, tag), peer, bytes, Kind::Send});
  });
}

bool RoundMessages::test(Transport& transport) {
  for (std::size_t i = 0; i < pending_.size();) {
    Pending& message = pending_[i];
    RecvStatus status;
    if (!transport.test(message.request, message.kind == Kind::Send ? nullptr : &status)) {
      ++i;
      continue;
    }
    const Pending done = message;
    message = pending_.back();
    pending_.pop_back();
    if (done.kind != Kind::Send && status.bytes != done.bytes)
      fail(ErrorCode::Mismatch, "rank ", done.peer, " sent ", status.bytes, " bytes where ", done.bytes,
           " were expected: the ranks called different collectives, or with different sizes");
    if (done.kind == Kind::Recv && acknowledge_)
      pending_.push_back(
          {transport.isend(channel_, nullptr, 0, done.peer, acknowledgement_tag_), done.peer, 0, Kind::Send});
  }
  return pending_.empty();
}

void RoundMessages::pending_peers(std::vector<int>& peers) const {
  for (const Pending& message : pending_) peers.push_back(message.peer);
}

void RoundMessages::abandon(Transport& transport) noexcept {
  for (Pending& message : pending_) abandon_quietly(transport, message.request);
  pending_.clear();
}

}  // namespace mpi_gdr
