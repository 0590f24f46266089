// Collectives over several nodes as schedules one after the other, for ranks that share memory inside their
// nodes, but with nobody else: each phase is among the ranks of a node, or among those that have the same
// place on each node. Pure functions, thread-safe.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpigdr {

struct Phase {
  bool inside = false;  // among the ranks of this node, on shared memory; else by messages
  CollectiveSpec spec;  // among those ranks
  // Inside a node ranks are numbered by their places; messages name ranks of the whole group.
  SchedulePtr schedule;
  // Where its buffers begin, in elements of the collective's Input (the first phase's Input) and Output.
  std::uint64_t input = 0, output = 0;
};

// A Phase's Input is the collective's in the first phase, its Output in later ones.
// All-reduce on N nodes of m ranks: reduce-scatter inside, all-reduce of a slice between the nodes by all
// ranks at the same time, all-gather inside.
//   T = T_staged reduce-scatter(m, n) + T_all_reduce(N, n/m) + T_staged all-gather(m, n)
//   inside a node a slice is folded once, in the order of the ranks
// `topology`: even, of several nodes of several ranks. `inside`, `between`: what the builders are told.
// Source: collectives/two_level.hpp.
std::vector<Phase> all_reduce_phases(const CollectiveSpec& spec, const Topology& topology,
                                     const Tuning& inside, const Tuning& between);

// The same schedule among other ranks: its rank i is ranks[i].
SchedulePtr among(const Schedule& schedule, const std::vector<int>& ranks);

}  // namespace mpigdr
