// Checks of one rank's schedule alone: bounds, the read-only input, races.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "checker/checker.hpp"
#include "checker/expression.hpp"
#include "checker/layout.hpp"

namespace mpi_gdr {
namespace {

struct Access {
  Extent extent;
  bool write;
  std::size_t owner;  // a step of a round, or a lane
};

std::optional<std::pair<Access, Access>> find_conflict(std::vector<Access> accesses) {
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return std::pair(a.extent.region, a.extent.begin) < std::pair(b.extent.region, b.extent.begin);
  });
  std::vector<Access> open;
  for (const Access& access : accesses) {
    std::erase_if(open, [&](const Access& o) { return !o.extent.overlaps(access.extent); });
    for (const Access& other : open)
      if (other.owner != access.owner && (other.write || access.write)) return std::pair(other, access);
    open.push_back(access);
  }
  return std::nullopt;
}

// Sorts a lane's extents and merges overlapping and adjacent ones.
void join(std::vector<Access>& accesses) {
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return std::tuple(a.write, a.extent.region, a.extent.begin) <
           std::tuple(b.write, b.extent.region, b.extent.begin);
  });
  std::vector<Access> joined;
  for (const Access& access : accesses) {
    Access* last = joined.empty() ? nullptr : &joined.back();
    if (last && last->write == access.write && last->extent.region == access.extent.region &&
        access.extent.begin <= last->extent.end)
      last->extent.end = std::max(last->extent.end, access.extent.end);
    else
      joined.push_back(access);
  }
  accesses = std::move(joined);
}

std::string common(const std::pair<Access, Access>& conflict) {
  const Extent &a = conflict.first.extent, &b = conflict.second.extent;
  const std::uint64_t begin = std::max(a.begin, b.begin);
  return text({a.region, begin, std::min(a.end, b.end) - begin});
}

void check_step(const CollectiveSpec& spec, const Schedule& schedule, const Step& step,
                const Layout& layout) {
  // The simulation checks slices of other ranks.
  const auto own = [&](const Slice& slice) { return slice.owner < 0 || slice.owner == spec.rank; };
  const auto inside = [&](const Slice& slice) {
    if (slice.owner >= spec.size ||
        (slice.owner >= 0 && (slice.buffer == Buffer::Scratch || slice.buffer == Buffer::Bounce)))
      reject("names ", text(slice));
    if (own(slice)) layout.check_bounds(slice);
  };
  const bool message = step.kind == StepKind::Send || step.kind == StepKind::Recv;
  const bool notice = step.kind == StepKind::Signal || step.kind == StepKind::Wait;
  if ((message || step.kind == StepKind::Wait) &&
      (step.peer < 0 || step.peer >= spec.size || step.peer == spec.rank))
    reject("names peer ", step.peer, " in a group of ", spec.size);
  const std::uint32_t sources = step.kind == StepKind::Recv || notice ? 0
                                : step.kind == StepKind::Reduce       ? step.source_count
                                                                      : 1;
  if (step.source_count != sources || (step.kind == StepKind::Reduce && sources == 0) ||
      step.first_source + std::uint64_t{sources} > schedule.sources.size())
    reject("has ", step.source_count, " sources");
  if (step.scale != Scale::None &&
      (message || notice || (step.kind == StepKind::Reduce && step.scale == Scale::PreMul)))
    reject("has a scale that this kind of step cannot apply");
  if (notice) return;
  if (message && !(own(step.dst) && (sources == 0 || own(schedule.source(step)))))
    reject("sends or receives memory of another rank");
  for (std::uint32_t k = 0; k < sources; ++k) inside(schedule.source(step, k));
  if (step.kind == StepKind::Send) {
    if (schedule.source(step).count == 0) reject("sends nothing");
    return;
  }
  inside(step.dst);
  if (step.dst.count == 0) reject("writes nothing");
  if (step.dst.buffer == Buffer::Input) reject("writes ", text(step.dst));
  const Extent dst = layout.resolve(step.dst);
  for (std::uint32_t k = 0; k < sources; ++k) {
    const Slice& source = schedule.source(step, k);
    if (source.count != step.dst.count)
      reject("has ", text(source), " as a source of ", text(step.dst), ", which is not as long");
    if (source.owner != step.dst.owner && !(own(source) && own(step.dst))) continue;
    const Extent extent = layout.resolve(source);
    if (extent.overlaps(dst) && !(extent == dst))
      reject("has ", text(source), " as a source of ", text(step.dst), ", which overlaps it in part");
  }
}

}  // namespace

bool is_skipped(const Schedule& schedule, const Step& step, const Layout& layout) {
  return step.kind == StepKind::Copy && step.scale == Scale::None &&
         schedule.source(step).owner == step.dst.owner &&
         layout.resolve(schedule.source(step)) == layout.resolve(step.dst);
}

void check_rank(const CollectiveSpec& spec, const Schedule& schedule, bool aliased) {
  const Layout layout(spec, schedule, aliased);
  const std::string rank = "rank " + std::to_string(spec.rank);
  if (schedule.lanes.size() > static_cast<std::size_t>(kMaxLanes))
    reject(rank, " has ", schedule.lanes.size(), " lanes");
  std::vector<Access> all;
  for (std::size_t l = 0; l < schedule.lanes.size(); ++l) {
    const Lane& lane = schedule.lanes[l];
    std::vector<Access> in_lane;
    for (std::uint32_t r = 0; r < lane.round_count; ++r) {
      const std::string round_text = rank + ", lane " + std::to_string(l) + ", round " + std::to_string(r);
      const Round& round = schedule.rounds.at(lane.first_round + r);
      std::vector<Access> in_round;
      for (std::uint32_t s = 0; s < round.step_count; ++s) {
        const Step& step = schedule.steps.at(round.first_step + s);
        try {
          check_step(spec, schedule, step, layout);
        } catch (const CheckFailure& failure) {
          reject(round_text, ", step ", s, " ", failure.what());
        }
        if (is_skipped(schedule, step, layout)) continue;
        const auto touch = [&](const Slice& slice, bool write) {
          if (slice.owner < 0 || slice.owner == spec.rank)
            in_round.push_back({layout.resolve(slice), write, s});
        };
        for (std::uint32_t k = 0; k < step.source_count; ++k) touch(schedule.source(step, k), false);
        if (step.dst.count > 0) touch(step.dst, true);
      }
      if (const auto conflict = find_conflict(in_round))
        reject(round_text, ": steps ", conflict->first.owner, " and ", conflict->second.owner, " race for ",
               common(*conflict));
      for (Access& access : in_round) access.owner = l;
      in_lane.insert(in_lane.end(), in_round.begin(), in_round.end());
      if (in_lane.size() > 4096) join(in_lane);
    }
    join(in_lane);
    all.insert(all.end(), in_lane.begin(), in_lane.end());
  }
  if (const auto conflict = find_conflict(std::move(all)))
    reject(rank, ": lanes ", conflict->first.owner, " and ", conflict->second.owner, " race for ",
           common(*conflict));
}

}  // namespace mpi_gdr
