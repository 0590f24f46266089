// The phases of a collective over several nodes as one schedule, for ranks on host memory.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "collectives/phases.hpp"
#include "common/error.hpp"
#include "schedule/rewrite.hpp"

namespace mpi_gdr {
namespace {

class Joiner {
 public:
  Joiner(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology, const Phases& made)
      : writer_(writer),
        made_(made),
        local_(topology.members(topology.node(spec.rank))),
        place_(topology.place(spec.rank)),
        common_(writer.scratch(made.scratch_count)) {
    for (const Phase& phase : made.phases) {
      scratch_ = std::max(scratch_, phase.schedule->scratch_count);
      staging_ = std::max(staging_, phase.schedule->staging_count);
      if (phase.schedule->shared) writer.shared();
    }
    if (made.one_way) writer.one_way();
  }

  void write() {
    std::vector<std::vector<const Phase*>> parts(static_cast<std::size_t>(made_.parts));
    for (const Phase& phase : made_.phases) parts[static_cast<std::size_t>(phase.part)].push_back(&phase);
    for (int lane = 0; lane < made_.lanes; ++lane) {
      writer_.lane();
      own_ = writer_.scratch(scratch_);
      rooms_ = {writer_.staging(staging_), writer_.staging(staging_)};
      turns_ = 0;
      for (auto part = static_cast<std::size_t>(lane); part < parts.size();
           part += static_cast<std::size_t>(made_.lanes))
        for (const Phase* const phase : parts[part]) write(*phase);
    }
  }

 private:
  // Phases in shared memory use the two rooms of their lane in turn. All ranks synchronise in each phase, so
  // a room is free when it is used again; only the root of a broadcast must still wait for the readers.
  void take_room(const Phase& phase) {
    room_ = rooms_[turns_ % 2];
    if (++turns_ <= 2 || phase.spec.collective != Collective::Broadcast) return;
    writer_.round();
    if (place_ != phase.spec.root) return writer_.signal();
    for (const int rank : local_)
      if (rank != local_[static_cast<std::size_t>(place_)]) writer_.wait(rank);
  }

  void write(const Phase& phase) {
    const Schedule& schedule = *phase.schedule;
    if (schedule.rounds.empty()) return;
    if (schedule.shared) take_room(phase);
    for (const Lane& lane : schedule.lanes)
      rewrite(writer_, schedule, lane, [&](Step step, std::vector<Slice> sources) {
        for (Slice& source : sources) source = moved(phase, source);
        step.dst = moved(phase, step.dst);
        if (schedule.shared && step.peer >= 0) step.peer = local_[static_cast<std::size_t>(step.peer)];
        const bool in_place =
            step.kind == StepKind::Copy && step.scale == Scale::None && step.dst == sources[0];
        if (!in_place) writer_.step(step, sources);
      });
  }

  Slice moved(const Phase& phase, Slice slice) const {
    if (slice.owner >= 0) slice.owner = local_[static_cast<std::size_t>(slice.owner)];
    if (slice.buffer == Buffer::Scratch) {
      slice.offset += own_.offset;
    } else if (slice.buffer == Buffer::Staging) {
      slice.offset += room_.offset;
    } else {
      slice.buffer = slice.buffer == Buffer::Input ? phase.input : phase.output;
      if (slice.buffer == Buffer::Scratch) slice.offset += common_.offset;
    }
    return slice;
  }

  ScheduleWriter& writer_;
  const Phases& made_;
  const std::vector<int>& local_;  // the ranks of this node
  const int place_;                // of this rank among them
  const Slice common_;
  std::uint64_t scratch_ = 0, staging_ = 0;  // elements that a phase needs at most
  // Of the current lane: Scratch, the room in Staging of the current phase, and both rooms.
  Slice own_, room_;
  std::array<Slice, 2> rooms_;
  std::uint64_t turns_ = 0;  // of the rooms
};

}  // namespace

void join(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology, const Phases& made) {
  Joiner(writer, spec, topology, made).write();
}

namespace collectives {

void two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  auto topology = spec.topology;
  const bool to_all = spec.collective == Collective::AllToAll;
  if (!topology) {
    std::vector<int> nodes(static_cast<std::size_t>(spec.size), 0);
    if (to_all) std::iota(nodes.begin(), nodes.end(), 0);  // no rank has another's counts
    topology = std::make_shared<const Topology>(nodes);
  }
  if (topology->size() != spec.size)
    fail(ErrorCode::InvalidUsage, name(spec.collective), ": topology has ", topology->size(),
         " ranks, expected size=", spec.size);
  if (to_all && !spec.send_counts.empty()) return all_to_all_two_level(writer, spec, *topology, tuning);
  const auto kind = tuning.node_shares ? Phase::Kind::Shared : Phase::Kind::Messages;
  join(writer, spec, *topology, phases_of(spec, *topology, kind, tuning, tuning));
}

}  // namespace collectives

SchedulePtr counts_of_node(const std::shared_ptr<const Topology>& topology, int rank, const Tuning& tuning) {
  CollectiveSpec spec{Collective::AllToAll, rank, topology->size()};
  spec.dtype = DataType::Int64;
  spec.topology = topology;
  ScheduleWriter writer("two_level");
  collectives::two_level(writer, spec, tuning);
  return writer.finish();
}

}  // namespace mpi_gdr
