#include "schedule/through_host.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace mpi_gdr {
namespace {

bool overlap(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.count && b.offset < a.offset + a.count;
}

class Area {
 public:
  explicit Area(Slice all) : all_(all) {}
  void clear() { used_ = 0; }
  Slice take(std::uint64_t count) {
    const Slice slice{Buffer::Bounce, all_.offset + used_, count};
    used_ += count;
    return slice;
  }

 private:
  Slice all_;
  std::uint64_t used_ = 0;
};

class LaneWriter {
 public:
  LaneWriter(ScheduleWriter& writer, const Schedule& from, const Lane& lane)
      : writer_(writer),
        from_(from),
        lane_(lane),
        sends_(writer.bounce(most(StepKind::Send))),
        receives_{Area(writer.bounce(most(StepKind::Recv))), Area(writer.bounce(most(StepKind::Recv)))} {}

  void write() {
    for (const Round& round : from_.rounds_of(lane_)) write(round);
    copy_arrived();
  }

 private:
  struct Arrival {
    Slice dst, bounce;
  };

  std::uint64_t most(StepKind kind) const {
    std::uint64_t most = 0;
    for (const Round& round : from_.rounds_of(lane_)) {
      std::uint64_t sum = 0;
      for (const Step& step : from_.steps_of(round))
        if (step.kind == kind) sum += kind == StepKind::Send ? from_.source(step).count : step.dst.count;
      most = std::max(most, sum);
    }
    return most;
  }

  const Arrival* arrival_of(const Slice& slice) const {
    const auto found =
        std::find_if(valid_.begin(), valid_.end(), [&](const auto& a) { return a.dst == slice; });
    return found == valid_.end() ? nullptr : &*found;
  }

  void copy_arrived() {
    if (uncopied_.empty()) return;
    writer_.round();
    for (const Arrival& arrival : std::exchange(uncopied_, {})) writer_.copy(arrival.dst, arrival.bounce);
  }

  void write(const Round& round) {
    bool messages = false, local = false, forwards = true;
    for (const Step& step : from_.steps_of(round)) {
      const bool send = step.kind == StepKind::Send;
      messages |= send || step.kind == StepKind::Recv;
      local |= !send && step.kind != StepKind::Recv;
      forwards &= !send || arrival_of(from_.source(step));
    }
    // Any local step may need received data first: in place, Input and Output are the same memory.
    if (!messages || local || !forwards) copy_arrived();
    if (!forwards) {
      writer_.round();
      sends_.clear();
      for (const Step& step : from_.steps_of(round))
        if (step.kind == StepKind::Send && !arrival_of(from_.source(step)))
          writer_.copy(sends_.take(from_.source(step).count), from_.source(step));
      sends_.clear();
    }
    writer_.round();
    copy_arrived();  // in the new, empty round
    Area& into = receives_[turn_];
    if (messages) into.clear();
    for (const Step& step : from_.steps_of(round)) {
      if (step.kind == StepKind::Send) {
        const Slice& source = from_.source(step);
        const Arrival* const arrival = arrival_of(source);
        writer_.send(step.peer, arrival ? arrival->bounce : sends_.take(source.count));
      } else if (step.kind == StepKind::Recv) {
        uncopied_.push_back({step.dst, into.take(step.dst.count)});
        writer_.recv(step.peer, uncopied_.back().bounce);
      } else {
        const auto sources = from_.sources_of(step);
        writer_.step(step, {sources.begin(), sources.end()});
        std::erase_if(valid_, [&](const Arrival& a) { return overlap(a.dst, step.dst); });
      }
    }
    if (!messages) return;
    valid_ = uncopied_;
    turn_ ^= 1;
  }

  ScheduleWriter& writer_;
  const Schedule& from_;
  const Lane& lane_;
  Area sends_, receives_[2];  // receives_ in turn: the last round's data may still be sent
  int turn_ = 0;
  std::vector<Arrival> uncopied_;  // not yet copied to their destination
  std::vector<Arrival> valid_;     // of the last round with messages, not overwritten since
};

}  // namespace

SchedulePtr through_host(const Schedule& schedule) {
  ScheduleWriter writer(schedule);
  for (const Lane& lane : schedule.lanes) {
    writer.lane();
    LaneWriter(writer, schedule, lane).write();
  }
  return writer.finish();
}

}  // namespace mpi_gdr
