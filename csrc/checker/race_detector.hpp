// Proves with vector clocks, from one run, that in every timing messages and notifications order all
// conflicting accesses to memory that several ranks touch (Mattern, "Virtual time and global states of
// distributed systems", 1989; Flanagan, Freund, "FastTrack: efficient and precise dynamic race detection",
// PLDI 2009). Not thread-safe.
//
// A clock has a number per lane of the group: 0 no information, 1 its rank has begun, 1 + k its first k
// rounds are over. A Recv or Wait updates it from the next round on. Accesses to a rank's Input and Output
// must lie between its begin and its end. Staging is not reused before all ranks have ended.
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
    int rank = 0;  // the accessing one
    std::size_t lane = 0;
    std::uint32_t round = 0, step = 0;
  };

  // In the order of some run. `clock`: the lane's when the round began. Throws CheckFailure.
  void access(const Access& access, const VectorClock& clock, std::size_t lane_of_owner);
  // `clock`: the owner's at its end. Throws CheckFailure.
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
