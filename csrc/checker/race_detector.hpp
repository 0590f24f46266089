// Whether all accesses to memory that several ranks touch are ordered by their messages and notifications, in
// every possible timing: with vector clocks, on one run of the schedules.
//
// What a Recv or Wait brings is known from the next round on, so a clock is one number per lane of the group:
// 0 nothing is known of it, 1 its rank has begun, 1 + k its first k rounds are over. Two accesses of which
// one writes must be ordered; and all accesses to a rank's Input and Output must lie between its begin and
// its end. Staging is not given out again before all ranks have ended.
//
// Source: Mattern, "Virtual time and global states of distributed systems", 1989; for race detection
// Flanagan, Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "checker/layout.hpp"

namespace mpi_gdr {

using VectorClock = std::vector<std::uint32_t>;  // by lane of the group

void merge(VectorClock& into, const VectorClock& from);

class RaceDetector {
 public:
  struct Access {
    int owner = 0;  // whose memory
    Extent extent;
    bool write = false;
    int rank = 0;  // who
    std::size_t lane = 0;
    std::uint32_t round = 0, step = 0;
  };

  // `knows`: the lane's clock at the begin of the round. In the order of some run. Throws CheckFailure.
  void access(const Access& access, const VectorClock& knows, std::size_t lane_of_owner);
  // `knows`: what the owner knows at its end. Throws CheckFailure.
  void end(int owner, const VectorClock& knows) const;

 private:
  // Accesses to one buffer by their first element, and the length of the longest one.
  struct History {
    std::multimap<std::uint64_t, Access> accesses;
    std::uint64_t longest = 0;
  };
  struct Memory {
    History reads, writes;
  };
  std::map<std::pair<int, Buffer>, Memory> memories_;
};

}  // namespace mpi_gdr
