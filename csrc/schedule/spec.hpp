// A builder's input: the collective as every rank of the group sees it, plus who this rank is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "common/types.hpp"
#include "schedule/topology.hpp"

namespace mpi_gdr {

// All fields but `rank`, `send_counts`, `recv_counts` and `node_counts` are equal on all ranks of the group,
// and only those may choose the algorithm.
//
// `count`, in elements:
//   AllReduce, Broadcast, Reduce   the whole buffer
//   AllGather, Gather              one rank's contribution; output holds size * count in rank order
//   ReduceScatter, Scatter         one rank's result;       input  holds size * count in rank order
//   AllToAll                       unused: send_counts[r] go to rank r, recv_counts[r] come from it, packed
//                                  in rank order without gaps
//   Barrier                        0
//
// `counts`: empty, or for AllGather and ReduceScatter one count per rank, zeros allowed: blocks have so many
// elements, in rank order without gaps, and `count` is ignored. Other collectives refuse it.
//
// Buffers that a schedule may name, and the aliasing that it must survive (the executor skips a Copy with
// Scale::None whose two sides are the same memory):
//   AllReduce      Input, Output      Input may be Output
//   Broadcast      Output on all      (root's data stands in Output already; Input is not named)
//   Reduce         Input on all, Output on the root only; Input may be Output there. Other ranks' memory is
//                  not written
//   AllGather      Input, Output      Input may be Output's own block (offset block_offset(spec, rank))
//   ReduceScatter  Input, Output      Output may be Input's own block (offset block_offset(spec, rank))
//   AllToAll       Input, Output      never alias
//   Gather         Input on all, Output on the root only; Input may be Output's own block there
//   Scatter        Input on the root only, Output on all; Output may be Input's own block there
struct CollectiveSpec {
  Collective collective = Collective::Barrier;
  int rank = 0;
  int size = 1;
  int root = 0;
  std::uint64_t count = 0;
  DataType dtype = DataType::UInt8;
  ReduceOp op = ReduceOp::Sum;
  std::vector<std::uint64_t> send_counts, recv_counts;
  // Of an AllToAll in two levels: send_counts of this node's ranks by place. Empty where it is alone there.
  std::vector<std::uint64_t> node_counts;
  std::vector<std::uint64_t> counts;
  std::shared_ptr<const Topology> topology;  // of the group's ranks; null: all are on one node
};

// Elements of rank r's block, and where it begins in the buffer of all blocks; r = size: the end.
inline std::uint64_t block_count(const CollectiveSpec& spec, int r) {
  return spec.counts.empty() ? spec.count : spec.counts[static_cast<std::size_t>(r)];
}
inline std::uint64_t block_offset(const CollectiveSpec& spec, int r) {
  if (spec.counts.empty()) return static_cast<std::uint64_t>(r) * spec.count;
  return std::accumulate(spec.counts.begin(), spec.counts.begin() + r, std::uint64_t{0});
}

// Elements of this rank's Input and Output; 0: it has none.
std::uint64_t input_count(const CollectiveSpec& spec);
std::uint64_t output_count(const CollectiveSpec& spec);
// Bytes of the larger of the two, on the root where there is one.
std::uint64_t largest_buffer(const CollectiveSpec& spec);

// As `count`; of blocks that differ, what one has on average, but for what is lost by rounding each.
inline std::uint64_t mean_count(const CollectiveSpec& spec) {
  if (spec.counts.empty()) return spec.count;
  std::uint64_t mean = 0;
  for (const std::uint64_t block : spec.counts) mean += block / spec.counts.size();
  return mean;
}

// Knobs of the builders, equal on all ranks.
struct Tuning {
  std::uint64_t chunk_bytes = 256 * 1024;    // target size of one message of a pipelined algorithm
  int max_lanes = 4;                         // 1..kMaxLanes
  std::uint64_t staging_bytes = 256 * 1024;  // of shared memory that an operation may use on each rank
  bool in_place = false;     // what goes through Staging is a mirror, if it is large (schedule/schedule.hpp)
  bool no_messages = false;  // in schedules on shared memory, however long they become
  // In phases: the ranks of this node share memory; else they send messages. Equal inside each node only.
  bool node_shares = false;
  // Ranks of each node that cross the network in a two-level all-reduce; 0: as many as the smallest node has.
  int leaders = 0;
};

}  // namespace mpi_gdr
