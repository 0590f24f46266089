// Schedules made of another one: the same lanes and rounds, other steps. Pure, thread-safe.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Writes the rounds of a lane of `from` behind what the writer's lane has. `change(step, sources)` gets a
// copy of each step, and writes what becomes of it.
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

// All of `from`, by a writer that was made like it.
template <typename Change>
SchedulePtr rewrite(ScheduleWriter& writer, const Schedule& from, Change change) {
  for (const Lane& lane : from.lanes) {
    writer.lane();
    rewrite(writer, from, lane, change);
  }
  return writer.finish();
}

}  // namespace mpi_gdr
