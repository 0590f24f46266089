#include "collectives/two_level.hpp"

#include "common/error.hpp"

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
  for (const Round& round : inner.rounds) {
    writer.round();
    for (std::uint32_t s = 0; s < round.step_count; ++s) {
      const Step& step = inner.steps[round.first_step + s];
      const auto rank = [&] { return ranks[static_cast<std::size_t>(step.peer)]; };
      std::vector<Slice> sources;
      for (std::uint32_t k = 0; k < step.source_count; ++k) sources.push_back(moved(inner.source(step, k)));
      switch (step.kind) {
        case StepKind::Send:
          writer.send(rank(), sources[0]);
          break;
        case StepKind::Recv:
          writer.recv(rank(), moved(step.dst));
          break;
        case StepKind::Copy:
          if (const Slice dst = moved(step.dst); dst != sources[0] || step.scale != Scale::None)
            writer.copy(dst, sources[0], step.scale);
          break;
        case StepKind::Reduce:
          writer.reduce(moved(step.dst), sources, step.scale);
          break;
        case StepKind::Notify:
        case StepKind::Await:
          fail(ErrorCode::Internal, inner.algorithm, " touches the memory of others");
      }
    }
  }
}

}  // namespace mpigdr::collectives
