#include "engine/host_execution.hpp"

#include <cstring>

#include "engine/local_step.hpp"

namespace mpigdr {

HostExecution::HostExecution(SchedulePtr schedule, const Binding& binding, Transport& transport,
                             ScratchPool& pool)
    : schedule_(std::move(schedule)),
      binding_(binding),
      transport_(transport),
      scratch_(pool.take(schedule_->scratch_count * item_size(binding.dtype))),
      lanes_(schedule_->lanes.size()) {
  binding_.scratch = scratch_.get();
}

bool HostExecution::advance() {
  bool done = true;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) done &= advance_lane(static_cast<int>(lane));
  return done;
}

bool HostExecution::advance_lane(int lane) {
  const Lane& plan = schedule_->lanes[lane];
  LaneState& state = lanes_[lane];
  while (state.round < plan.round_count) {
    const Round& round = schedule_->rounds[plan.first_round + state.round];
    if (!state.posted) {
      state.messages.post(*schedule_, round, lane, binding_, transport_);
      state.posted = true;
      run_local_steps(round);  // while the round's messages travel
    }
    if (!state.messages.test(transport_)) return false;
    state.posted = false;
    ++state.round;
    ++rounds_done_;
  }
  return true;
}

void HostExecution::run_local_steps(const Round& round) {
  for (std::uint32_t i = 0; i < round.step_count; ++i) {
    const Step& step = schedule_->steps[round.first_step + i];
    if (step.kind != StepKind::Copy && step.kind != StepKind::Reduce) continue;
    const LocalStep local = resolve(*schedule_, step, binding_, sources_);
    if (local.kind == LocalStep::Kind::Copy) std::memcpy(local.args.dst, local.args.sources[0], local.bytes);
    if (local.kind == LocalStep::Kind::Reduce) host::reduce(local.args);
  }
}

std::vector<int> HostExecution::pending_peers() const {
  std::vector<int> peers;
  for (const LaneState& lane : lanes_) lane.messages.pending_peers(peers);
  return peers;
}

void HostExecution::abandon() noexcept {
  for (LaneState& lane : lanes_) lane.messages.abandon(transport_);
  scratch_.leak();
}

}  // namespace mpigdr
