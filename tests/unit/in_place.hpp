// Rewrites a rank's schedule with mirrors (schedule/schedule.hpp) for given reachable buffers as one without
// mirrors, for the checker.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

// By rank: whether the others reach its Input and its Output.
struct Reached {
  std::vector<bool> input, output;
};

inline Reached reached_by(int size, auto input, auto output) {
  Reached reached;
  for (int r = 0; r < size; ++r) {
    reached.input.push_back(input(r));
    reached.output.push_back(output(r));
  }
  return reached;
}

class InPlaceWriter {
 public:
  InPlaceWriter(const Schedule& schedule, int rank, const Reached& reached)
      : schedule_(schedule), rank_(rank), reached_(reached), writer_(schedule) {}

  SchedulePtr run() {
    for (const Lane& lane : schedule_.lanes) {
      writer_.lane();
      for (const Round& round : schedule_.rounds_of(lane)) {
        writer_.round();
        later_.clear();
        for (const Step& step : schedule_.steps_of(round)) write(step);
        writer_.round();
        for (const auto& [dst, source] : later_) writer_.copy(dst, source);
      }
    }
    return writer_.finish();
  }

 private:
  int owner(const Slice& slice) const { return slice.owner < 0 ? rank_ : slice.owner; }
  const Original* original(const Slice& slice) const {
    return slice.original < 0 ? nullptr : &schedule_.originals[static_cast<std::size_t>(slice.original)];
  }
  bool is_mirror(const Slice& slice, Buffer buffer) const {
    return original(slice) && original(slice)->buffer == buffer;
  }
  static Slice without(Slice slice) {
    slice.original = -1;
    return slice;
  }
  Slice at_original(const Slice& slice, int r) const {
    return {original(slice)->buffer, original(slice)->offset, slice.count, r == rank_ ? -1 : r};
  }
  Slice read(const Slice& slice) const {
    const bool there =
        is_mirror(slice, Buffer::Input) && reached_.input[static_cast<std::size_t>(owner(slice))];
    return there ? at_original(slice, owner(slice)) : without(slice);
  }

  void write(const Step& step) {
    const auto self = static_cast<std::size_t>(rank_);
    if (step.kind == StepKind::Copy) {
      if (is_mirror(step.dst, Buffer::Input) && reached_.input[self]) return;
      if (is_mirror(schedule_.source(step), Buffer::Output) && reached_.output[self]) return;
    }
    Step part = step;
    part.dst = without(step.dst);
    std::vector<Slice> sources;
    for (const Slice& source : schedule_.sources_of(step)) sources.push_back(read(source));
    const bool result = step.kind == StepKind::Reduce && is_mirror(step.dst, Buffer::Output);
    if (result && reached_.output[self]) part.dst = at_original(step.dst, rank_);
    writer_.step(part, sources);
    if (!result) return;
    const bool all =
        std::find(reached_.output.begin(), reached_.output.end(), false) == reached_.output.end();
    if (reached_.output[self] && !all) later_.emplace_back(without(step.dst), part.dst);
    for (std::size_t r = 0; r < reached_.output.size(); ++r)
      if (r != self && reached_.output[r])
        later_.emplace_back(at_original(step.dst, static_cast<int>(r)), part.dst);
  }

  const Schedule& schedule_;
  const int rank_;
  const Reached& reached_;
  ScheduleWriter writer_;
  std::vector<std::pair<Slice, Slice>> later_;  // copies of this round's results
};

inline SchedulePtr in_place(const Schedule& schedule, int rank, const Reached& reached) {
  return InPlaceWriter(schedule, rank, reached).run();
}

}  // namespace mpi_gdr
