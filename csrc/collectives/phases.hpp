// Collectives over several nodes as schedules one after the other, for ranks that share memory inside their
// nodes, but with nobody else: each phase is among the ranks of a node, on that memory, or between the nodes,
// by messages. A large call is cut into parts, so that one part is between the nodes while others are inside.
// Pure functions, thread-safe.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpigdr {

struct Phase {
  bool inside = false;  // among the ranks of this node; else by messages
  CollectiveSpec spec;  // among its ranks
  // The collective's buffers that are the Input and the Output of the schedule. Scratch: memory that all
  // phases have in common; the Scratch that the schedule names is its own.
  Buffer input = Buffer::Input, output = Buffer::Output;
  // Inside a node ranks are numbered by their places; messages name ranks of the whole group.
  SchedulePtr schedule;
  int part = 0;     // of the call
  int behind = -1;  // the phase whose end it needs, of the same part; -1: none
};

struct Phases {
  // In an order in which they may run one after the other. Those inside form one sequence, equal on all ranks
  // of a node, and those between the nodes another; the two run side by side, but for Phase::behind.
  std::vector<Phase> phases;
  std::uint64_t scratch_count = 0;  // elements that all phases have in common
  bool one_way = false;             // as Schedule::one_way
};

// Whether a call of this kind has phases: on nodes of unequal sizes only an all-reduce and a broadcast, and
// only even blocks.
bool has_phases(const CollectiveSpec& spec, const Topology& topology);

// On N nodes of m ranks, l leaders in each (those of the first places), n = the whole buffer. T_staged: of
// collectives/shared.hpp, of m ranks; T_between: by the built-in table, of N ranks.
//   all-reduce      reduce-scatter to the leaders inside, all-reduce of each leader's slice between the
//                   nodes, all-gather from the leaders inside
//     T = T_staged reduce_scatter(n) + T_between all_reduce(n/l) + T_staged all_gather(n)
//   all-gather      of the ranks of a place between the nodes, of what they have then inside
//     T = T_between all_gather(n/m) + T_staged all_gather(n)
//   reduce-scatter  of N blocks for each place inside, of these between the nodes; scratch n/m
//     T = T_staged reduce_scatter(n) + T_between reduce_scatter(n/m)
//   broadcast       from the root to one rank of each other node, from these inside
//     T = T_between broadcast(n) + T_staged broadcast(n)
// With k parts the longer of the two sums, inside and between, hides all but 1/k of the other. Inside a node
// everything is folded once, in the order of the ranks.
//
// `topology`: of the ranks of `spec`, several nodes. `inside`, `between`: what the builders are told.
// Source: collectives/two_level.hpp.
Phases phases_of(const CollectiveSpec& spec, const Topology& topology, const Tuning& inside,
                 const Tuning& between);

}  // namespace mpigdr
