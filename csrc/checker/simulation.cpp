#include "checker/simulation.hpp"

#include <algorithm>
#include <numeric>

namespace mpi_gdr {

Simulation::Simulation(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules,
                       const CheckMode& mode)
    : specs_(specs), schedules_(schedules), mode_(mode), table_(specs[0].op), ranks_(specs.size()) {
  for (std::size_t r = 0; r < specs.size(); ++r) {
    layouts_.emplace_back(specs[r], *schedules[r], mode.is_aliased(static_cast<int>(r)));
    shared_ |= schedules[r]->shared;
    initialise(r);
    for (std::size_t l = 0; l < schedules[r]->lanes.size(); ++l) {
      LaneState lane;
      lane.rank = static_cast<int>(r);
      lane.number = static_cast<int>(l);
      lane.predecessors = lane.predecessors_next = RankSet(lane.rank);
      ranks_[r].lanes.push_back(lanes_.size());
      ready_.push_back(lanes_.size());
      lanes_.push_back(std::move(lane));
    }
  }
  notices_.resize(lanes_.size());
  if (!shared_) return;
  for (const RankState& state : ranks_)
    for (const std::size_t lane : state.lanes) {
      lanes_[lane].clock_next.resize(lanes_.size());
      for (const std::size_t own : state.lanes) lanes_[lane].clock_next[own] = 1;
    }
}

void Simulation::initialise(std::size_t rank) {
  const CollectiveSpec& spec = specs_[rank];
  const Layout& layout = layouts_[rank];
  RankState& state = ranks_[rank];
  const auto fill = [&](Buffer buffer) {
    if (const std::uint64_t count = layout.counts[static_cast<std::size_t>(buffer)]; count > 0)
      state.memory.write(layout.resolve({buffer, 0, count}), {{count, table_.input(spec.rank), 0}});
  };
  fill(Buffer::Input);
  if (traits(spec.collective).input == Contents::None && spec.rank == spec.root) fill(Buffer::Output);
  if (barrier()) fill(Buffer::Scratch);  // the values do not matter
  if (!mode_.device_queue) return;

  const Schedule& schedule = *schedules_[rank];
  for (std::size_t l = 0; l < schedule.lanes.size(); ++l)
    for (std::uint32_t r = 0; r < schedule.lanes[l].round_count; ++r) {
      const auto steps = schedule.steps_of(schedule.rounds_of(schedule.lanes[l])[r]);
      for (std::uint32_t s = 0; s < steps.size(); ++s) {
        const Step& step = steps[s];
        const bool on_device = step.kind == StepKind::Copy || step.kind == StepKind::Reduce;
        if (on_device && !is_skipped(schedule, step, layout))
          state.queue.push_back({r, lanes_.size() + l, s});
      }
    }
}

const Round& Simulation::round_of(const LaneState& lane) const {
  const Schedule& schedule = *schedules_[static_cast<std::size_t>(lane.rank)];
  return schedule.rounds[schedule.lanes[static_cast<std::size_t>(lane.number)].first_round + lane.round];
}

const Step& Simulation::step_of(const LaneState& lane, std::uint32_t step) const {
  return schedules_[static_cast<std::size_t>(lane.rank)]->steps[round_of(lane).first_step + step];
}

std::string Simulation::where(std::size_t lane, std::uint32_t step) const {
  const LaneState& state = lanes_[lane];
  return "rank " + std::to_string(state.rank) + ", lane " + std::to_string(state.number) + ", round " +
         std::to_string(state.round) + ", step " + std::to_string(step);
}

void Simulation::run() {
  while (!ready_.empty()) {
    const std::size_t lane = ready_.front();
    ready_.pop_front();
    LaneState& state = lanes_[lane];
    const Schedule& schedule = *schedules_[static_cast<std::size_t>(state.rank)];
    if (state.started) ++state.round;
    state.started = true;
    if (barrier()) state.predecessors = state.predecessors_next;
    state.depth = state.depth_next;
    if (shared_) {
      state.clock_next[lane] = state.round + 1;
      state.clock = state.clock_next;
    }
    costs_.steps = std::max(costs_.steps, state.depth);
    if (state.round < schedule.lanes[static_cast<std::size_t>(state.number)].round_count) begin_round(lane);
  }
  report_deadlock_or_leftovers();
  if (shared_) check_ends();
}

void Simulation::check_ends() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    VectorClock clock(lanes_.size());
    for (const std::size_t lane : ranks_[r].lanes) merge(clock, lanes_[lane].clock_next);
    races_.end(static_cast<int>(r), clock);
  }
}

// In an all-to-all, an offset in another rank's Input or Output counts from `rank`'s block (schedule.hpp).
Slice Simulation::in_whole_buffer(Slice slice, int rank, int owner) const {
  const CollectiveSpec& spec = specs_[static_cast<std::size_t>(owner)];
  const bool tensor = slice.buffer == Buffer::Input || slice.buffer == Buffer::Output;
  if (traits(spec.collective).input != Contents::Splits || rank == owner || !tensor) return slice;
  const auto& counts = slice.buffer == Buffer::Input ? spec.send_counts : spec.recv_counts;
  slice.offset += std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0});
  return slice;
}

Extent Simulation::touch(std::size_t lane, std::uint32_t step, const Slice& slice, bool write) {
  const LaneState& state = lanes_[lane];
  const std::size_t at = owner(lane, slice);
  const Slice whole = in_whole_buffer(slice, state.rank, static_cast<int>(at));
  layouts_[at].check_bounds(whole);
  const Extent extent = layouts_[at].resolve(whole);
  if (shared_) {
    if (ranks_[at].lanes.empty()) reject("names ", text(slice), ", which has no schedule");
    races_.access({static_cast<int>(at), extent, write, state.rank, lane, state.round, step}, state.clock,
                  ranks_[at].lanes[0]);
  }
  return extent;
}

Values Simulation::read(std::size_t lane, std::uint32_t step, const Slice& slice) {
  return ranks_[owner(lane, slice)].memory.read(touch(lane, step, slice, false));
}

void Simulation::write(std::size_t lane, std::uint32_t step, const Slice& slice, const Values& values) {
  ranks_[owner(lane, slice)].memory.write(touch(lane, step, slice, true), values);
}

void Simulation::signal(std::size_t lane) {
  Notices& notices = notices_[lane];
  notices.sent.push_back(notice(lanes_[lane]));
  std::vector<Waiting> ready;
  std::erase_if(notices.awaited, [&](const Waiting& w) {
    if (w.number >= notices.sent.size()) return false;
    ready.push_back(w);
    return true;
  });
  for (const Waiting& waiting : ready) satisfy(waiting, notices.sent[waiting.number]);
}

void Simulation::wait(std::size_t lane, std::uint32_t step) {
  LaneState& state = lanes_[lane];
  const RankState& peer = ranks_[static_cast<std::size_t>(step_of(state, step).peer)];
  const auto number = static_cast<std::size_t>(state.number);
  if (number >= peer.lanes.size())
    reject(where(lane, step), " waits for a lane that rank ", step_of(state, step).peer, " does not have");
  const std::size_t source = peer.lanes[number];
  const Waiting waiting{lane, step, state.consumed[source]++};
  if (waiting.number < notices_[source].sent.size())
    satisfy(waiting, notices_[source].sent[waiting.number]);
  else
    notices_[source].awaited.push_back(waiting);
}

void Simulation::merge_notice(LaneState& state, const Notice& notice) const {
  if (barrier()) state.predecessors_next.merge(notice.predecessors);
  state.depth_next = std::max(state.depth_next, notice.depth + 1);
  merge(state.clock_next, notice.clock);
}

void Simulation::satisfy(const Waiting& waiting, const Notice& notice) {
  merge_notice(lanes_[waiting.lane], notice);
  complete(waiting.lane, waiting.step);
}

void Simulation::begin_round(std::size_t lane) {
  LaneState& state = lanes_[lane];
  const auto rank = static_cast<std::size_t>(state.rank);
  const Schedule& schedule = *schedules_[rank];
  const Round& round = round_of(state);
  state.remaining = round.step_count;
  state.done.assign(round.step_count, false);
  for (std::uint32_t s = 0; s < round.step_count; ++s) {
    const Step& step = step_of(state, s);
    switch (step.kind) {
      case StepKind::Send: {
        Message message{lane, s, {}, notice(state)};
        try {
          message.values = read(lane, s, schedule.source(step));
        } catch (const CheckFailure& failure) {
          reject(where(lane, s), " ", failure.what());
        }
        ++costs_.messages;
        costs_.elements_sent += schedule.source(step).count;
        Channel& channel = channels_[{state.rank, step.peer, state.number}];
        channel.sends.push_back(std::move(message));
        if (!mode_.synchronous_sends) complete(lane, s);
        match(channel);
        break;
      }
      case StepKind::Recv: {
        Channel& channel = channels_[{step.peer, state.rank, state.number}];
        channel.recvs.push_back({lane, s, {}, {}});
        match(channel);
        break;
      }
      case StepKind::Signal:
        signal(lane);
        complete(lane, s);
        break;
      case StepKind::Wait:
        wait(lane, s);
        break;
      case StepKind::Copy:
      case StepKind::Reduce:
        if (is_skipped(schedule, step, layouts_[rank]))
          complete(lane, s);
        else if (!mode_.device_queue)
          execute(lane, s);
        break;
    }
  }
  serve_queue(rank);
}

void Simulation::match(Channel& channel) {
  while (!channel.sends.empty() && !channel.recvs.empty()) {
    const Message sent = std::move(channel.sends.front()), received = std::move(channel.recvs.front());
    channel.sends.pop_front();
    channel.recvs.pop_front();
    LaneState& receiver = lanes_[received.lane];
    const Slice dst = step_of(receiver, received.step).dst;
    std::uint64_t length = 0;
    for (const Value& value : sent.values) length += value.count;
    if (length != dst.count)
      reject(where(received.lane, received.step), " receives ", dst.count, " elements, but rank ",
             lanes_[sent.lane].rank, " sends ", length);
    write(received.lane, received.step, dst, sent.values);
    merge_notice(receiver, sent.notice);
    if (mode_.synchronous_sends) complete(sent.lane, sent.step);
    complete(received.lane, received.step);
  }
}

void Simulation::execute(std::size_t lane, std::uint32_t s) {
  const LaneState& state = lanes_[lane];
  const auto rank = static_cast<std::size_t>(state.rank);
  const Schedule& schedule = *schedules_[rank];
  const Step& step = step_of(state, s);
  try {
    std::vector<Values> sources;
    for (std::uint32_t k = 0; k < step.source_count; ++k)
      sources.push_back(read(lane, s, schedule.source(step, k)));
    if (step.kind == StepKind::Reduce) {
      if (!reduces(specs_[rank].collective)) reject("reduces, but the collective only moves data");
      costs_.elements_reduced += step.dst.count * (step.source_count - 1);
      write(lane, s, step.dst, reduce(sources, step.scale, table_));
    } else {
      write(lane, s, step.dst, scaled(std::move(sources[0]), step.scale, table_));
    }
  } catch (const CheckFailure& failure) {
    reject(where(lane, s), " ", failure.what());
  }
  complete(lane, s);
}

void Simulation::serve_queue(std::size_t rank) {
  RankState& state = ranks_[rank];
  for (; state.head < state.queue.size(); ++state.head) {
    const DeviceStep& next = state.queue[state.head];
    const LaneState& lane = lanes_[next.lane];
    if (!lane.started || lane.round != next.round || lane.remaining == 0) return;
    execute(next.lane, next.step);
  }
}

void Simulation::complete(std::size_t lane, std::uint32_t step) {
  LaneState& state = lanes_[lane];
  state.done[step] = true;
  if (--state.remaining == 0) ready_.push_back(lane);
}

void Simulation::report_deadlock_or_leftovers() const {
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const LaneState& state = lanes_[l];
    if (state.remaining == 0) continue;
    const auto s = static_cast<std::uint32_t>(
        std::distance(state.done.begin(), std::find(state.done.begin(), state.done.end(), false)));
    const Step& step = step_of(state, s);
    std::string what = " waits forever ";
    if (step.kind == StepKind::Send)
      what += "to send to rank " + std::to_string(step.peer);
    else if (step.kind == StepKind::Recv)
      what += "to receive from rank " + std::to_string(step.peer);
    else if (step.kind == StepKind::Wait)
      what += "for a signal from rank " + std::to_string(step.peer);
    else
      what += "for its turn in the device queue";
    reject(where(l, s), what);
  }
  for (const auto& [key, channel] : channels_)
    if (!channel.sends.empty())
      reject("rank ", std::get<0>(key), ", lane ", std::get<2>(key), " sends ", channel.sends.size(),
             " messages to rank ", std::get<1>(key), " that are never received");
}

Values Simulation::output(int rank, const Slice& slice) const {
  const auto r = static_cast<std::size_t>(rank);
  try {
    return ranks_[r].memory.read(layouts_[r].resolve(slice));
  } catch (const CheckFailure&) {
    reject("rank ", rank, " ends with part of ", text(slice), " never written");
  }
}

RankSet Simulation::predecessors(int rank) const {
  RankSet all(rank);
  for (const std::size_t lane : ranks_[static_cast<std::size_t>(rank)].lanes)
    all.merge(lanes_[lane].predecessors_next);
  return all;
}

}  // namespace mpi_gdr
