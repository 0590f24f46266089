// Schedules derived from another one: same lanes and rounds, other steps. Thread-safe.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Appends a lane of `from`. `change(step, sources)` gets a copy of each step and writes its replacement.
template <typename Change>
void rewrite(ScheduleWriter& writer, const Schedule& from, const Lane& lane, Change change) {
  for (const Round& round : from.rounds_of(lane)) {
    writer.round();
    for (const Step& step : from.steps_of(round)) {
      const auto sources = from.sources_of(step);
      change(Step(step), std::vector<Slice>(sources.begin(), sources.end()));
    }
  }
}

// Rewrites all of `from`; the writer was created from it.
template <typename Change>
SchedulePtr rewrite(ScheduleWriter& writer, const Schedule& from, Change change) {
  for (const Lane& lane : from.lanes) {
    writer.lane();
    rewrite(writer, from, lane, change);
  }
  return writer.finish();
}

}  // namespace mpi_gdr
