// Collectives over several nodes in phases. A phase is a schedule "inside" a node, among its ranks, or
// "between" nodes, among one rank of each. Data crosses the network once for all ranks of a node. The ranks
// that send and receive it are called leaders; each node has as many as the smallest node has ranks. A large
// call is cut into parts, and phases inside overlap with phases between. Pure functions, thread-safe.
//
// Sources: Kandalla et al., "Designing multi-leader-based Allgather algorithms for multi-core clusters",
// IPDPS 2009; Bayatpour et al., "Scalable reduction collectives with data partitioning-based multi-leader
// design", SC 2017.
#pragma once

#include <memory>
#include <vector>

#include "common/library_call.hpp"
#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

struct Phase {
  // On host memory, join() merges phases of the first two kinds into one schedule.
  enum class Kind : std::uint8_t {
    Messages,  // the schedule's ranks are ranks of the group
    Shared,    // host memory that the ranks of a node share; the schedule's ranks are places in the node
    Devices,   // device memory that the ranks of a node share; the schedule's ranks are places in the node
    Library,   // NCCL's: `calls` in place of a schedule; ranks are places in the node
  };
  CollectiveSpec spec;  // rank, size and counts refer to the ranks of the phase
  // The call's buffers to which the schedule's Input and Output refer. Scratch: memory common to all phases.
  Buffer input = Buffer::Input, output = Buffer::Output;
  int part = 0;         // of the call
  int depends_on = -1;  // a phase that must end first, of the same part; -1: none
  Kind kind = Kind::Messages;
  SchedulePtr schedule;
  std::shared_ptr<const std::vector<LibraryCall>> calls = {};
};

struct Phases {
  // Phases of the last two kinds run in list order, which is the same on all ranks of a node. Phases of kind
  // Messages run in list order, too. The two sequences run concurrently, except for Phase::depends_on.
  std::vector<Phase> phases;
  std::uint64_t scratch_count = 0;  // elements, common to all phases
  bool one_way = false;             // as Schedule::one_way
  int parts = 1;                    // of the call
  int lanes = 1;                    // of join()'s schedule: part i is in lane i % lanes
};

// The phases on N nodes of m ranks for a buffer of n elements. The l leaders of a node have the places
// (Topology::place) 0 to l - 1; a phase between nodes is among ranks of the same place.
//   all-reduce      inside: reduce-scatter to the leaders; between: all-reduce of n/l; inside: all-gather
//   all-gather      between: all-gather of n/m; inside: all-gather
//   reduce-scatter  inside: each place gets N blocks (n/m, scratch); between: reduce-scatter of these blocks
//   broadcast       between: from the root to one rank of each node; inside: from this rank
//   barrier         inside; between the first ranks of the nodes; inside
// With k parts a call takes the longer of its two times (inside, between) plus 1/k of the shorter. Phases
// through Staging fold a node's contributions once, in rank order. In nodes with more ranks than leaders, a
// leader carries the blocks of several ranks: the node gathers these blocks first, or the leaders distribute
// them last.
//
// `kind`: of the phases inside. Devices, Library: requires has_phases(); the parts are long, and phases
// inside go through Staging, or are NCCL's. Other kinds: the parts suit join(); each has a share of the
// staging memory, and in large calls phases inside send messages. `inside`, `between`: for the builders;
// between.leaders > 0 limits l.
Phases phases_of(const CollectiveSpec& spec, const Topology& topology, Phase::Kind kind, const Tuning& inside,
                 const Tuning& between);
// A schedule as the only phase of its collective, on devices if it is shared.
Phases whole_of(const CollectiveSpec& spec, const SchedulePtr& schedule);
// NCCL's calls as the only phase.
Phases whole_by_library(const CollectiveSpec& spec);

// Whether a call on devices runs in phases, given that the devices of a node share memory.
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
