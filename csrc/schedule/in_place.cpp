#include "schedule/in_place.hpp"

#include <algorithm>
#include <utility>

namespace mpigdr {
namespace {

class InPlaceWriter {
 public:
  InPlaceWriter(const Schedule& schedule, int rank, const Reached& reached)
      : schedule_(schedule), rank_(rank), reached_(reached), writer_(schedule.algorithm) {}

  SchedulePtr run() {
    if (schedule_.staging_count) writer_.staging(schedule_.staging_count);
    if (schedule_.scratch_count) writer_.scratch(schedule_.scratch_count);
    if (schedule_.shared) writer_.shared();
    for (const Lane& lane : schedule_.lanes) {
      writer_.lane();
      for (std::uint32_t k = 0; k < lane.round_count; ++k) {
        const Round& round = schedule_.rounds[lane.first_round + k];
        writer_.round();
        later_.clear();
        for (std::uint32_t s = 0; s < round.step_count; ++s) write(schedule_.steps[round.first_step + s]);
        writer_.round();
        for (const auto& [dst, source] : later_) writer_.copy(dst, source);
      }
    }
    return writer_.finish();
  }

 private:
  int owner(const Slice& slice) const { return slice.owner < 0 ? rank_ : slice.owner; }
  const Place* place(const Slice& slice) const {
    return slice.place < 0 ? nullptr : &schedule_.places[static_cast<std::size_t>(slice.place)];
  }
  bool is_placed(const Slice& slice, Buffer buffer) const {
    return place(slice) && place(slice)->buffer == buffer;
  }
  static Slice without(Slice slice) {
    slice.place = -1;
    return slice;
  }
  Slice at_place(const Slice& slice, int r) const {
    return {place(slice)->buffer, place(slice)->offset, slice.count, r == rank_ ? -1 : r};
  }
  Slice read(const Slice& slice) const {
    const bool there =
        is_placed(slice, Buffer::Input) && reached_.input[static_cast<std::size_t>(owner(slice))];
    return there ? at_place(slice, owner(slice)) : without(slice);
  }

  void write(const Step& step) {
    const auto self = static_cast<std::size_t>(rank_);
    switch (step.kind) {
      case StepKind::Notify:
        return writer_.notify();
      case StepKind::Await:
        return writer_.await(step.peer);
      case StepKind::Send:
        return writer_.send(step.peer, schedule_.source(step));
      case StepKind::Recv:
        return writer_.recv(step.peer, step.dst);
      case StepKind::Copy: {
        const Slice& source = schedule_.source(step);
        if (is_placed(step.dst, Buffer::Input) && reached_.input[self]) return;
        if (is_placed(source, Buffer::Output) && reached_.output[self]) return;
        return writer_.copy(without(step.dst), read(source), step.scale);
      }
      case StepKind::Reduce: {
        std::vector<Slice> sources;
        for (std::uint32_t k = 0; k < step.source_count; ++k)
          sources.push_back(read(schedule_.source(step, k)));
        if (!is_placed(step.dst, Buffer::Output))
          return writer_.reduce(without(step.dst), sources, step.scale);
        const bool all =
            std::find(reached_.output.begin(), reached_.output.end(), false) == reached_.output.end();
        const Slice first = reached_.output[self] ? at_place(step.dst, rank_) : without(step.dst);
        writer_.reduce(first, sources, step.scale);
        if (reached_.output[self] && !all) later_.emplace_back(without(step.dst), first);
        for (std::size_t r = 0; r < reached_.output.size(); ++r)
          if (r != self && reached_.output[r])
            later_.emplace_back(at_place(step.dst, static_cast<int>(r)), first);
        return;
      }
    }
  }

  const Schedule& schedule_;
  const int rank_;
  const Reached& reached_;
  ScheduleWriter writer_;
  std::vector<std::pair<Slice, Slice>> later_;  // copies of what this round reduces
};

}  // namespace

SchedulePtr in_place(const Schedule& schedule, int rank, const Reached& reached) {
  return InPlaceWriter(schedule, rank, reached).run();
}

}  // namespace mpigdr
