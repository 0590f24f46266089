// What the algorithms for groups over several nodes share. They cross the network once for all ranks of a
// node, and every rank of it takes part in that: where the nodes have m ranks each, m "leaders" of each node
// work at the same time, each on its part of the data. (An all-reduce may have fewer; a broadcast and a
// barrier have one.) They run on any placement, contiguous or not, and on nodes of different sizes; without a
// topology all ranks are on one node.
//
// Source: Kandalla et al., "Designing multi-leader-based Allgather algorithms for multi-core clusters", IPDPS
// 2009; Bayatpour et al., "Scalable reduction collectives with data partitioning-based multi-leader design",
// SC 2017.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/build.hpp"
#include "schedule/topology.hpp"

namespace mpigdr::collectives {

// This rank's view of a topology.
struct TwoLevel {
  explicit TwoLevel(const CollectiveSpec& spec);

  std::shared_ptr<const Topology> topology;
  int nodes, node;                // how many, and this rank's
  int place;                      // of this rank among `local`
  const std::vector<int>& local;  // the ranks of this node
  int ranks;                      // how many those are

  const std::vector<int>& members(int v) const { return topology->members(v); }
  // The ranks of node v with which the rank at `k` of this node deals, in their order: each with the one of
  // its own place, and those beyond with the first ones again.
  std::vector<int> served(int v, std::size_t k) const {
    std::vector<int> found;
    for (std::size_t i = k; i < members(v).size(); i += local.size()) found.push_back(members(v)[i]);
    return found;
  }
  // Of node v, whoever deals with what concerns place `place` of another node: that may have more ranks.
  int counterpart(int v, int place) const {
    const std::vector<int>& all = members(v);
    return all[static_cast<std::size_t>(place) % all.size()];
  }
};

// How many ranks of each node lead in an all-reduce, the same on all nodes: each slice has a leader on every
// node, so that the smallest one bounds them.
inline int leaders_of(const Topology& topology, const Tuning& tuning) {
  return tuning.leaders == 0 ? topology.fewest() : std::min(tuning.leaders, topology.fewest());
}

// Takes the only lane of `inner` over into the lane that the writer is in: its rank i is ranks[i], its Input
// and Output are both `data`, in place. `scratch` is what it may use, and is replaced where that is too
// little.
void embed(ScheduleWriter& writer, const Schedule& inner, const std::vector<int>& ranks, const Slice& data,
           Slice& scratch);

}  // namespace mpigdr::collectives
