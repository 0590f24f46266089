#include "schedule/schedule.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"

namespace mpigdr {

ScheduleWriter::ScheduleWriter(std::string algorithm) { schedule_.algorithm = std::move(algorithm); }

ScheduleWriter::ScheduleWriter(const Schedule& like) : ScheduleWriter(like.algorithm) {
  schedule_.scratch_count = like.scratch_count;
  schedule_.staging_count = like.staging_count;
  schedule_.bounce_count = like.bounce_count;
  schedule_.shared = like.shared;
  schedule_.one_way = like.one_way;
}

void ScheduleWriter::lane() {
  if (schedule_.lanes.size() == static_cast<std::size_t>(kMaxLanes))
    fail(ErrorCode::Internal, schedule_.algorithm, ": more than ", kMaxLanes, " lanes");
  schedule_.lanes.push_back({static_cast<std::uint32_t>(schedule_.rounds.size()), 0});
}

void ScheduleWriter::round() {
  if (schedule_.lanes.empty()) lane();
  Lane& current = schedule_.lanes.back();
  if (current.round_count > 0 && schedule_.rounds.back().step_count == 0) return;  // reuse the empty one
  schedule_.rounds.push_back({static_cast<std::uint32_t>(schedule_.steps.size()), 0});
  ++current.round_count;
}

void ScheduleWriter::append(Step step, const std::vector<Slice>& sources) {
  if (schedule_.lanes.empty() || schedule_.lanes.back().round_count == 0) round();
  step.first_source = static_cast<std::uint32_t>(schedule_.sources.size());
  step.source_count = static_cast<std::uint32_t>(sources.size());
  schedule_.sources.insert(schedule_.sources.end(), sources.begin(), sources.end());
  const auto shared = [](const Slice& slice) { return slice.owner >= 0 || slice.buffer == Buffer::Staging; };
  schedule_.shared |= step.kind == StepKind::Notify || step.kind == StepKind::Await || shared(step.dst) ||
                      std::any_of(sources.begin(), sources.end(), shared);
  schedule_.messages |= step.kind == StepKind::Send || step.kind == StepKind::Recv;
  schedule_.steps.push_back(step);
  ++schedule_.rounds.back().step_count;
}

void ScheduleWriter::send(int peer, Slice source) {
  if (source.count == 0) return;
  append({.kind = StepKind::Send, .peer = peer}, {source});
}

void ScheduleWriter::recv(int peer, Slice dst) {
  if (dst.count == 0) return;
  append({.kind = StepKind::Recv, .peer = peer, .dst = dst}, {});
}

void ScheduleWriter::copy(Slice dst, Slice source, Scale scale) {
  MPIGDR_CHECK(dst.count == source.count);
  if (dst.count == 0) return;
  append({.kind = StepKind::Copy, .scale = scale, .dst = dst}, {source});
}

void ScheduleWriter::reduce(Slice dst, const std::vector<Slice>& sources, Scale scale) {
  MPIGDR_CHECK(!sources.empty() && scale != Scale::PreMul);
  for (const Slice& source : sources) MPIGDR_CHECK(source.count == dst.count);
  if (dst.count == 0) return;
  append({.kind = StepKind::Reduce, .scale = scale, .dst = dst}, sources);
}

void ScheduleWriter::notify() { append({.kind = StepKind::Notify}, {}); }

void ScheduleWriter::await(int peer) { append({.kind = StepKind::Await, .peer = peer}, {}); }

void ScheduleWriter::step(const Step& like, const std::vector<Slice>& sources) {
  switch (like.kind) {
    case StepKind::Send:
      return send(like.peer, sources[0]);
    case StepKind::Recv:
      return recv(like.peer, like.dst);
    case StepKind::Copy:
      return copy(like.dst, sources[0], like.scale);
    case StepKind::Reduce:
      return reduce(like.dst, sources, like.scale);
    case StepKind::Notify:
      return notify();
    case StepKind::Await:
      return await(like.peer);
  }
}

Slice ScheduleWriter::placed(Slice slice, const Slice& where) {
  MPIGDR_CHECK(slice.buffer == Buffer::Staging && slice.count == where.count);
  slice.place = static_cast<std::int32_t>(schedule_.places.size());
  schedule_.places.push_back({where.buffer, where.offset});
  return slice;
}

void ScheduleWriter::staged(SchedulePtr instead) {
  schedule_.one_way |= instead->one_way;
  schedule_.staged = std::move(instead);
}

SchedulePtr ScheduleWriter::finish() {
  // round() never leaves an empty round behind another, so at most the last one of each lane is empty.
  Schedule result = std::move(schedule_);
  std::vector<Round> rounds;
  for (Lane& lane : result.lanes) {
    const auto first = static_cast<std::uint32_t>(rounds.size());
    for (const Round& round : result.rounds_of(lane))
      if (round.step_count > 0) rounds.push_back(round);
    lane = {first, static_cast<std::uint32_t>(rounds.size()) - first};
  }
  result.rounds = std::move(rounds);
  return std::make_shared<const Schedule>(std::move(result));
}

}  // namespace mpigdr
