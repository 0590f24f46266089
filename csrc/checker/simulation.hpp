// Runs schedules that have passed check_rank() on symbolic memory. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "checker/checker.hpp"
#include "checker/expression.hpp"
#include "checker/layout.hpp"
#include "checker/race_detector.hpp"
#include "checker/symbolic_memory.hpp"

namespace mpi_gdr {

class Simulation {
 public:
  // `specs` and `schedules` must outlive this object.
  Simulation(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules,
             const CheckMode& mode);
  // Throws CheckFailure.
  void run();
  const CheckResult& costs() const { return costs_; }
  Values output(int rank, const Slice& slice) const;
  // The ranks that must have begun before `rank` can end; for barriers only.
  RankSet predecessors(int rank) const;
  ExpressionTable& expressions() { return table_; }

 private:
  struct LaneState {
    int rank = 0, number = 0;
    bool started = false;
    std::uint32_t round = 0, remaining = 0;
    std::vector<bool> done;  // steps of the current round
    // At the start of the current round; *_next: at its end.
    RankSet predecessors, predecessors_next;
    std::uint64_t depth = 0, depth_next = 0;
    VectorClock clock, clock_next;                // only for shared schedules
    std::map<std::size_t, std::size_t> consumed;  // number of Waits so far, by lane of the peer
  };
  struct Notice {  // the state of a lane, carried by a Signal or Send
    RankSet predecessors;
    std::uint64_t depth = 0;
    VectorClock clock;
  };
  struct Message {  // a posted Send or Recv
    std::size_t lane;
    std::uint32_t step;
    Values values;
    Notice notice;
  };
  struct Waiting {  // a Wait
    std::size_t lane;
    std::uint32_t step;
    std::size_t number;  // of the awaited Signal
  };
  struct Notices {
    std::vector<Notice> sent;
    std::vector<Waiting> awaited;
  };
  struct Channel {
    std::deque<Message> sends, recvs;
  };
  struct DeviceStep {
    std::uint32_t round;
    std::size_t lane;
    std::uint32_t step;
  };
  struct RankState {
    SymbolicMemory memory;
    std::vector<DeviceStep> queue;  // Copy and Reduce in the order of submission
    std::size_t head = 0;
    std::vector<std::size_t> lanes;
  };

  bool barrier() const { return traits(specs_[0].collective).output == Contents::None; }
  void initialise(std::size_t rank);
  void begin_round(std::size_t lane);
  void match(Channel& channel);
  void signal(std::size_t lane);
  void wait(std::size_t lane, std::uint32_t step);
  Notice notice(const LaneState& lane) const {
    return {barrier() ? lane.predecessors : RankSet(), lane.depth, lane.clock};
  }
  void merge_notice(LaneState& state, const Notice& notice) const;
  void satisfy(const Waiting& waiting, const Notice& notice);
  Values read(std::size_t lane, std::uint32_t step, const Slice& slice);
  void write(std::size_t lane, std::uint32_t step, const Slice& slice, const Values& values);
  std::size_t owner(std::size_t lane, const Slice& slice) const {
    return static_cast<std::size_t>(slice.owner < 0 ? lanes_[lane].rank : slice.owner);
  }
  Slice in_whole_buffer(Slice slice, int rank, int owner) const;
  Extent touch(std::size_t lane, std::uint32_t step, const Slice& slice, bool write);
  void check_ends() const;
  void execute(std::size_t lane, std::uint32_t step);
  void serve_queue(std::size_t rank);
  void complete(std::size_t lane, std::uint32_t step);
  const Round& round_of(const LaneState& lane) const;
  const Step& step_of(const LaneState& lane, std::uint32_t step) const;
  std::string where(std::size_t lane, std::uint32_t step) const;
  void report_deadlock_or_leftovers() const;

  const std::vector<CollectiveSpec>& specs_;
  const std::vector<SchedulePtr>& schedules_;
  const CheckMode mode_;
  ExpressionTable table_;
  std::vector<Layout> layouts_;
  std::vector<RankState> ranks_;
  std::vector<LaneState> lanes_;
  std::map<std::tuple<int, int, int>, Channel> channels_;  // source, destination, lane
  std::vector<Notices> notices_;                           // by lane
  bool shared_ = false;
  RaceDetector races_;
  std::deque<std::size_t> ready_;  // lanes whose current round is over
  CheckResult costs_;
};

}  // namespace mpi_gdr
