#include "collectives/two_level.hpp"

#include "common/error.hpp"
#include "schedule/rewrite.hpp"

namespace mpigdr::collectives {
namespace {

std::shared_ptr<const Topology> topology_of(const CollectiveSpec& spec) {
  if (!spec.topology)
    return std::make_shared<const Topology>(std::vector<int>(static_cast<std::size_t>(spec.size), 0));
  if (spec.topology->size() != spec.size)
    fail(ErrorCode::InvalidUsage, name(spec.collective), ": topology has ", spec.topology->size(),
         " ranks, expected size=", spec.size);
  return spec.topology;
}

}  // namespace

TwoLevel::TwoLevel(const CollectiveSpec& spec)
    : topology(topology_of(spec)),
      nodes(topology->nodes()),
      node(topology->node(spec.rank)),
      place(topology->place(spec.rank)),
      local(topology->members(node)),
      ranks(static_cast<int>(local.size())) {}

void embed(ScheduleWriter& writer, const Schedule& inner, const std::vector<int>& ranks, const Slice& data,
           Slice& scratch) {
  MPIGDR_CHECK(inner.lanes.size() <= 1 && !inner.shared && !inner.one_way);
  if (scratch.count < inner.scratch_count) scratch = writer.scratch(inner.scratch_count);
  const auto moved = [&](Slice slice) {
    const Slice& to = slice.buffer == Buffer::Scratch ? scratch : data;
    slice.buffer = to.buffer;
    slice.offset += to.offset;
    return slice;
  };
  const auto change = [&](Step step, std::vector<Slice> sources) {
    for (Slice& source : sources) source = moved(source);
    step.dst = moved(step.dst);
    if (step.peer >= 0) step.peer = ranks[static_cast<std::size_t>(step.peer)];
    const bool in_place = step.kind == StepKind::Copy && step.scale == Scale::None && step.dst == sources[0];
    if (!in_place) writer.step(step, sources);
  };
  for (const Lane& lane : inner.lanes) rewrite(writer, inner, lane, change);
}

}  // namespace mpigdr::collectives
