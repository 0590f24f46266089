#include "schedule/schedule.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "common/types.hpp"

namespace mpi_gdr {

static_assert(kDataTypeCount == static_cast<int>(DataType::Bool) + 1);
static_assert(kReduceOpCount == static_cast<int>(ReduceOp::BitXor) + 1);
static_assert(kStepKindCount == static_cast<int>(StepKind::Wait) + 1);
static_assert(kBufferCount == static_cast<int>(Buffer::Bounce) + 1);

ScheduleWriter::ScheduleWriter(const Schedule& like) : ScheduleWriter(like.algorithm) {
  schedule_.scratch_count = like.scratch_count;
  schedule_.staging_count = like.staging_count;
  schedule_.bounce_count = like.bounce_count;
  schedule_.shared = like.shared;
  schedule_.one_way = like.one_way;
  schedule_.ordered = like.ordered;
  schedule_.flat = like.flat;
}

void ScheduleWriter::lane() {
  if (schedule_.lanes.size() == static_cast<std::size_t>(kMaxLanes))
    fail(ErrorCode::Internal, schedule_.algorithm, ": more than ", kMaxLanes, " lanes");
  schedule_.lanes.push_back({static_cast<std::uint32_t>(schedule_.rounds.size()), 0});
}

void ScheduleWriter::round() {
  if (schedule_.lanes.empty()) lane();
  Lane& current = schedule_.lanes.back();
  if (current.round_count > 0 && schedule_.rounds.back().step_count == 0) return;  // reuses the empty one
  schedule_.rounds.push_back({static_cast<std::uint32_t>(schedule_.steps.size()), 0});
  ++current.round_count;
}

void ScheduleWriter::step(Step step, const std::vector<Slice>& sources) {
  const bool notice = step.kind == StepKind::Signal || step.kind == StepKind::Wait;
  const bool message = step.kind == StepKind::Send || step.kind == StepKind::Recv;
  const std::uint64_t count = step.kind == StepKind::Send ? sources[0].count : step.dst.count;
  MPI_GDR_CHECK(step.kind != StepKind::Reduce || (!sources.empty() && step.scale != Scale::PreMul));
  for (const Slice& source : sources)
    MPI_GDR_CHECK(step.kind == StepKind::Send || source.count == step.dst.count);
  if (count == 0 && !notice) return;
  if (notice || step.kind == StepKind::Send) step.dst = {};
  if (notice || message) step.scale = Scale::None;
  if (step.kind != StepKind::Wait && !message) step.peer = -1;
  if (schedule_.lanes.empty() || schedule_.lanes.back().round_count == 0) round();
  step.first_source = static_cast<std::uint32_t>(schedule_.sources.size());
  step.source_count = static_cast<std::uint32_t>(sources.size());
  schedule_.sources.insert(schedule_.sources.end(), sources.begin(), sources.end());
  const auto shared = [](const Slice& slice) { return slice.owner >= 0 || slice.buffer == Buffer::Staging; };
  schedule_.shared |= notice || shared(step.dst) || std::any_of(sources.begin(), sources.end(), shared);
  schedule_.messages |= message;
  schedule_.steps.push_back(step);
  ++schedule_.rounds.back().step_count;
}

Slice ScheduleWriter::mirror(Slice slice, const Slice& of) {
  MPI_GDR_CHECK(slice.buffer == Buffer::Staging && slice.count == of.count);
  slice.original = static_cast<std::int32_t>(schedule_.originals.size());
  schedule_.originals.push_back({of.buffer, of.offset});
  return slice;
}

void ScheduleWriter::staged(SchedulePtr instead) {
  schedule_.one_way |= instead->one_way;
  schedule_.staged = std::move(instead);
}

SchedulePtr ScheduleWriter::finish() {
  // round() leaves at most one empty round per lane, the last.
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

}  // namespace mpi_gdr
