// Proves from one run, with vector clocks, that messages and notifications order all conflicting accesses to
// shared memory, whatever the timing (Mattern, "Virtual time and global states of distributed systems", 1989;
// Flanagan, Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009). Not thread-safe.
//
// A clock holds a number per lane of the group. 0: no information; 1: the lane's rank has begun; 1 + k: the
// lane's first k rounds are over. A Recv or Wait updates the clock for later rounds. Other ranks access a
// rank's Input and Output only between its begin and its end. Staging is reused once all ranks have ended.
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
    int owner = 0;  // the rank whose memory it is
    Extent extent;
    bool write = false;
    int rank = 0;  // the accessing rank
    std::size_t lane = 0;
    std::uint32_t round = 0, step = 0;
  };

  // Called in the order of the run. `clock`: the lane's clock when the round began. Throws CheckFailure.
  void access(const Access& access, const VectorClock& clock, std::size_t lane_of_owner);
  // `clock`: the merged clocks of the owner's lanes after the run. Throws CheckFailure.
  void end(int owner, const VectorClock& clock) const;

 private:
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
