// Collectives over several nodes in phases: each is a schedule among the ranks of a node, through shared
// memory, or among one rank of each node, by messages. Data crosses the network once for all ranks of a node,
// carried by as many ranks of each node as the smallest one has ("leaders"). A large call is cut into parts:
// one is between the nodes while others are inside. Pure functions, thread-safe.
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
  // On the host join() merges the first two.
  enum class Kind : std::uint8_t {
    Messages,  // between ranks of the group, as its schedule names them
    Shared,    // memory that the ranks of this node share; its schedule names them by their places
    Devices,   // the same, of the memory of their devices
  };
  CollectiveSpec spec;  // among its ranks
  // The collective's buffers that the schedule's are. Scratch: memory common to all phases.
  Buffer input = Buffer::Input, output = Buffer::Output;
  int part = 0;         // of the call
  int depends_on = -1;  // a phase that must end first, of the same part; -1: none
  Kind kind = Kind::Messages;
  SchedulePtr schedule;
};

struct Phases {
  // In an order in which they may run. Those on Devices form one sequence, equal on all ranks of a node, and
  // those by Messages another. The two run side by side, except for Phase::depends_on.
  std::vector<Phase> phases;
  std::uint64_t scratch_count = 0;  // elements, common to all phases
  bool one_way = false;             // as Schedule::one_way
  int parts = 1;                    // of the call
  int lanes = 1;                    // of one schedule, in which they take turns
};

// On N nodes of m ranks, l leaders in each (those of the first places), n = the whole buffer:
//   all-reduce      reduce-scatter to the leaders inside, all-reduce of each leader's n/l between the nodes,
//                   all-gather from the leaders inside
//   all-gather      among the ranks of a place between the nodes, n/m each, then inside
//   reduce-scatter  of N blocks for each place inside, of these between the nodes; scratch n/m
//   broadcast       from the root to one rank of each other node, from these inside
//   barrier         inside, among the first ranks of the nodes, inside
// With k parts the longer of the two times, inside and between, hides all but 1/k of the other. Through
// Staging, contributions are folded once inside a node, in rank order. On nodes of unequal sizes a leader
// also takes the blocks of ranks beyond the places that all nodes have: gathered before, or handed out after.
//
// `kind`: of the phases inside a node. Devices: for calls with has_phases() only; each part is long and goes
// through Staging inside. Else the parts are made for join(), each with a share of the staging memory, and
// large calls send messages inside. `inside`, `between`: for the builders; between.leaders > 0 limits l.
Phases phases_of(const CollectiveSpec& spec, const Topology& topology, Phase::Kind kind, const Tuning& inside,
                 const Tuning& between);
// A schedule as the only phase of its collective, on devices if it is shared.
Phases whole_of(const CollectiveSpec& spec, const SchedulePtr& schedule);

// Whether devices that share memory inside the nodes run a call in phases.
bool has_phases(const CollectiveSpec& spec, const Topology& topology);

// Writes all phases into one schedule: parts take turns in the lanes, the phases of a part follow each other.
void join(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology, const Phases& made);

// Runs before a two-level all_to_all: an all-gather of CollectiveSpec::node_counts, Int64, in place.
SchedulePtr counts_of_node(const std::shared_ptr<const Topology>& topology, int rank, const Tuning& tuning);

namespace collectives {

void all_to_all_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology,
                          const Tuning& tuning);

}  // namespace collectives
}  // namespace mpi_gdr
