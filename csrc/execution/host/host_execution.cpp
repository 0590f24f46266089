#include "execution/host/host_execution.hpp"

#include <cstring>

#include "execution/local_step.hpp"

namespace mpi_gdr {
namespace {

// advance() returns after this many bytes, so that other operations progress and deadlines are checked.
constexpr std::size_t kMostWork = std::size_t{4} << 20;

}  // namespace

HostExecution::HostExecution(SchedulePtr schedule, Binding&& binding, Transport& transport, ScratchPool& pool)
    : schedule_(std::move(schedule)),
      plan_(schedule_.get()),
      binding_(std::move(binding)),
      transport_(transport),
      scratch_(pool.take(schedule_->scratch_count * item_size(binding_.dtype))),
      lanes_(schedule_->lanes.size(), &memory_) {
  binding_.scratch = scratch_.get();
  if (schedule_->shared) shared_.emplace(*schedule_, binding_, pool, memory_);
}

bool HostExecution::advance() {
  if (shared_) {
    if (!shared_->begin()) return false;
    plan_ = &shared_->schedule();
    if (schedule_->staged) chosen_ = rival_name(plan_ == schedule_.get() ? 0 : 1);
  }
  if (binding_.observer && !observer_)
    observer_ = binding_.observer->observe(*plan_, binding_.dtype, transport_.rank());
  bool done = true;
  worked_ = 0;
  for (std::size_t lane = 0; lane < plan_->lanes.size(); ++lane) done &= advance_lane(static_cast<int>(lane));
  if (done && shared_ && !ended_) {
    ended_ = true;
    shared_->end();
  }
  return done;
}

bool HostExecution::advance_lane(int lane) {
  const Lane& rounds = plan_->lanes[lane];
  LaneState& state = lanes_[lane];
  while (state.round < rounds.round_count) {
    const Round& round = plan_->rounds[rounds.first_round + state.round];
    if (!state.posted) {
      if (worked_ > kMostWork) return false;
      if (observer_) observer_->began(lane);
      if (plan_->messages) state.messages.post(*plan_, round, lane, binding_, transport_);
      state.posted = true;
      run_local_steps(round, lane);  // while the round's messages travel
      if (observer_) observer_->worked(lane);
    }
    if (!state.messages.test(transport_) || !run_waits(round, lane)) return false;
    if (observer_) observer_->ended(lane, state.round, round);
    state.posted = false;
    state.waits = 0;
    ++state.round;
    ++rounds_done_;
  }
  return true;
}

bool HostExecution::run_waits(const Round& round, int lane) {
  if (!shared_) return true;
  for (std::uint32_t& i = lanes_[static_cast<std::size_t>(lane)].waits; i < round.step_count; ++i) {
    const Step& step = plan_->steps[round.first_step + i];
    if (step.kind == StepKind::Wait && !shared_->awaited(lane, step)) return false;
  }
  return true;
}

void HostExecution::run_local_steps(const Round& round, int lane) {
  if (shared_)  // a Signal announces the end of earlier rounds: it precedes this round's work
    for (const Step& step : plan_->steps_of(round))
      if (step.kind == StepKind::Signal) shared_->signal(lane);
  for (const Step& step : plan_->steps_of(round)) {
    if (step.kind != StepKind::Copy && step.kind != StepKind::Reduce) continue;
    worked_ += byte_count(step.dst, binding_) * step.source_count;
    if (shared_) {
      shared_->run(step);
      continue;
    }
    const LocalStep local = resolve(*plan_, step, binding_, sources_);
    if (local.kind == LocalStep::Kind::Copy) std::memcpy(local.args.dst, local.args.sources[0], local.bytes);
    if (local.kind == LocalStep::Kind::Reduce) host::reduce(local.args);
  }
}

std::vector<int> HostExecution::pending_peers() const {
  std::vector<int> peers;
  for (const LaneState& lane : lanes_) lane.messages.pending_peers(peers);
  if (shared_) shared_->pending_peers(peers);
  return peers;
}

bool HostExecution::doorbell(Doorbell& bell) const {
  if (!shared_) return false;
  std::size_t under_way = 0;
  for (std::size_t i = 0; i < plan_->lanes.size(); ++i)
    under_way += lanes_[i].round < plan_->lanes[i].round_count;
  return under_way == 1 && shared_->doorbell(bell);
}

void HostExecution::abandon() noexcept {
  for (LaneState& lane : lanes_) lane.messages.abandon(transport_);
  scratch_.leak();
  if (shared_) shared_->leak();
}

}  // namespace mpi_gdr
