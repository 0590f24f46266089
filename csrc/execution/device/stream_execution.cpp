#include "execution/device/stream_execution.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "execution/local_step.hpp"

namespace mpi_gdr {

StreamExecution::StreamExecution(SchedulePtr schedule, const Binding& binding, Transport& transport,
                                 std::shared_ptr<StreamFlagPool> flags)
    : DeviceProgram(schedule->rounds.size(), binding, std::move(flags)),
      schedule_(std::move(schedule)),
      transport_(transport) {
  MPI_GDR_CHECK(schedule_->lanes.size() <= static_cast<std::size_t>(kMaxLanes));
  sides_.reserve(schedule_->rounds.size());
  for (const Round& round : schedule_->rounds) sides_.push_back(sides_of(round));
  for (const Lane& lane : schedule_->lanes) {
    const auto first = sides_.begin() + lane.first_round;
    host_total_.push_back(std::count_if(first, first + lane.round_count, [](Sides s) { return s.host; }));
  }
  cursors_.resize(schedule_->lanes.size());
}

StreamExecution::Sides StreamExecution::sides_of(const Round& round) {
  Sides sides;
  for (const Step& step : schedule_->steps_of(round)) {
    if (step.kind == StepKind::Send || step.kind == StepKind::Recv)
      sides.host = true;
    else if (resolve(*schedule_, step, binding_, sources_).kind != LocalStep::Kind::Nothing)
      sides.device = true;
  }
  return sides;
}

void StreamExecution::submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) {
  // On the caller's queue: this operation's messages may start before earlier ones on our queues end.
  caller.write_flag(flags_.start(), flags_.base + 1);
  const std::size_t lanes = schedule_->lanes.size();
  const std::size_t used = std::clamp<std::size_t>(lanes, 1, queues.size());
  for (std::size_t q = 0; q < used; ++q) device.order(caller, *queues[q]);
  // Lane by lane: lanes are independent of each other on every rank, so this order is topological over all
  // ranks. An order by round number is not, because round numbers differ between ranks.
  for (std::size_t lane = 0; lane < lanes; ++lane) submit_lane(static_cast<int>(lane), *queues[lane % used]);
  // Submitted after all lanes: a wait for one lane's last messages would delay the queue's next lanes.
  for (std::size_t lane = 0; lane < lanes; ++lane)
    if (host_total_[lane])
      queues[lane % used]->wait_flag(flags_.host(static_cast<int>(lane)), flags_.base + host_total_[lane]);
  for (std::size_t q = 1; q < used; ++q) device.order(*queues[q], *queues[0]);
}

void StreamExecution::submit_lane(int lane, DeviceQueue& queue) {
  const Lane& rounds = schedule_->lanes[lane];
  std::uint32_t host_before = 0, awaited = 0, device_done = 0;
  for (std::uint32_t r = 0; r < rounds.round_count; ++r) {
    const Sides sides = sides_[rounds.first_round + r];
    if (sides.device) {
      if (host_before > awaited) queue.wait_flag(flags_.host(lane), flags_.base + host_before);
      awaited = host_before;
      for (const Step& step : schedule_->steps_of(schedule_->rounds[rounds.first_round + r]))
        if (step.kind == StepKind::Copy || step.kind == StepKind::Reduce)
          mpi_gdr::submit(resolve(*schedule_, step, binding_, sources_), queue);
      ++device_done;
      // Only rounds with messages read the counter: written if the lane's next round with work is one.
      std::uint32_t next = r + 1;
      const auto idle = [&](const Sides& s) { return !s.host && !s.device; };
      while (next < rounds.round_count && idle(sides_[rounds.first_round + next])) ++next;
      if (next < rounds.round_count && sides_[rounds.first_round + next].host)
        queue.write_flag(flags_.device(lane), flags_.base + device_done);
    }
    host_before += sides.host;
  }
}

bool StreamExecution::carry() {
  if (!started_) {
    // Before the start flag, the caller's stream may still write the input and read the output.
    if (flags_.start()->load(std::memory_order_acquire) < flags_.base + 1) return false;
    started_ = true;
    // No messages yet: the flag may be set because an earlier operation failed and released the stream, with
    // invalid data. The engine checks for that failure before the next call.
    return false;
  }
  for (std::size_t lane = 0; lane < cursors_.size(); ++lane) advance_lane(static_cast<int>(lane));
  return flags_.ended();
}

void StreamExecution::advance_lane(int lane) {
  const Lane& rounds = schedule_->lanes[lane];
  Cursor& at = cursors_[lane];
  for (; at.round < rounds.round_count; ++at.round) {
    const std::uint32_t index = rounds.first_round + at.round;
    if (sides_[index].host) {
      if (!at.posted) {
        if (at.device_before &&
            flags_.device(lane)->load(std::memory_order_acquire) < flags_.base + at.device_before)
          return;
        at.messages.post(*schedule_, schedule_->rounds[index], lane, binding_, transport_);
        at.posted = true;
      }
      if (!at.messages.test(transport_)) return;
      at.posted = false;
      ++at.host_done;
      ++rounds_done_;
      raise(*flags_.host(lane), flags_.base + at.host_done);
    }
    at.device_before += sides_[index].device;
  }
}

std::vector<int> StreamExecution::pending_peers() const {
  std::vector<int> peers;
  for (const Cursor& cursor : cursors_) cursor.messages.pending_peers(peers);
  return peers;
}

void StreamExecution::abandon() noexcept {
  for (Cursor& cursor : cursors_) cursor.messages.abandon(transport_);
  release_device();
}

void StreamExecution::release_waits() noexcept {
  for (std::size_t lane = 0; lane < host_total_.size(); ++lane)
    raise(*flags_.host(static_cast<int>(lane)), flags_.base + host_total_[lane]);
}

}  // namespace mpi_gdr
