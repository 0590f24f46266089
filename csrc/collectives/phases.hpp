// Collectives over several nodes in phases: each is a schedule among the ranks of a node, through the memory
// that they share, or among one rank of each node, by messages. Data crosses the network once for all ranks
// of a node, carried by as many ranks of each node as the smallest one has ("leaders"). A large call is cut
// into parts, so that one part is between the nodes while others are inside. Pure functions, thread-safe.
//
// Sources: Kandalla et al., "Designing multi-leader-based Allgather algorithms for multi-core clusters",
// IPDPS 2009; Bayatpour et al., "Scalable reduction collectives with data partitioning-based multi-leader
// design", SC 2017.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

struct Phase {
  // What carries it: join() runs the first two together on the host.
  enum class Kind : std::uint8_t {
    Messages,  // between ranks of the group, as its schedule names them
    Shared,    // memory that the ranks of this node share; its schedule names them by their places
    Devices,   // the same, of the memory of their devices
  };
  CollectiveSpec spec;  // among its ranks
  // The collective's buffers that are the schedule's. Scratch: memory that all phases have in common.
  Buffer input = Buffer::Input, output = Buffer::Output;
  int part = 0;         // of the call
  int depends_on = -1;  // the phase whose end it needs, of the same part; -1: none
  Kind kind = Kind::Messages;
  SchedulePtr schedule;
};

struct Phases {
  // In an order in which they may run. Those on Devices form one sequence, equal on all ranks of a node, and
  // those by Messages another; the two run side by side, but for Phase::depends_on.
  std::vector<Phase> phases;
  std::uint64_t scratch_count = 0;  // elements that all phases have in common
  bool one_way = false;             // as Schedule::one_way
  int parts = 1;                    // of the call
  int lanes = 1;                    // in which they take turns, of one program
};

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
//   barrier         inside, among the first ranks of the nodes, inside
// With k parts the longer of the two sums, inside and between, hides all but 1/k of the other. Inside a node
// everything is folded once, in the order of the ranks. On nodes of unequal sizes a leader also takes the
// blocks of ranks beyond the places that all nodes have: gathered inside before, or handed out after.
//
// `kind`: of what is inside a node. On Devices, only for what has_phases(), each part is long and goes
// through Staging inside. Else the parts are made for join(), each with a share of the staging memory, and
// large calls send messages inside. `inside`, `between`: for the builders; all_reduce: l <= between.leaders.
Phases phases_of(const CollectiveSpec& spec, const Topology& topology, Phase::Kind kind, const Tuning& inside,
                 const Tuning& between);
// What one schedule does on devices, as the only phase of its collective.
Phases whole_of(const CollectiveSpec& spec, const SchedulePtr& schedule);

// Whether devices that share memory inside the nodes run a call in phases.
bool has_phases(const CollectiveSpec& spec, const Topology& topology);

// All phases as one schedule: the parts take turns in the lanes, the phases of a part follow each other.
void join(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology, const Phases& made);

// Runs before a two-level all_to_all: an all-gather of CollectiveSpec::node_counts, Int64, in place.
SchedulePtr counts_of_node(const std::shared_ptr<const Topology>& topology, int rank, const Tuning& tuning);

namespace collectives {

void all_to_all_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology,
                          const Tuning& tuning);

}  // namespace collectives
}  // namespace mpi_gdr
