// A builder's input: the collective, and this rank's place in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "common/types.hpp"
#include "schedule/topology.hpp"

namespace mpi_gdr {

// Equal on all ranks, except `rank`, `send_counts`, `recv_counts` and `node_counts`; only equal fields may
// choose the algorithm. `count`, in elements:
//   AllReduce, Broadcast, Reduce   the whole buffer
//   AllGather, Gather              one rank's contribution; output holds size * count in rank order
//   ReduceScatter, Scatter         one rank's result;       input  holds size * count in rank order
//   AllToAll                       unused: send_counts and recv_counts by rank, packed in rank order
// `counts`: empty, or for AllGather and ReduceScatter one count per rank (0 allowed), packed; replaces
// `count`.
//
// Buffers that a schedule may name, and aliasing that it must support (the executor skips a Copy with
// Scale::None between the same memory):
//   AllReduce      Input, Output      Input may be Output
//   Broadcast      Output on all      (root's data is in Output already)
//   Reduce         Input on all, Output on the root only; Input may be Output there
//   AllGather      Input, Output      Input may be Output's own block (offset block_offset(spec, rank))
//   ReduceScatter  Input, Output      Output may be Input's own block
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
  // For a two-level AllToAll: send_counts of this node's ranks, by place. Empty if it is the only one there.
  std::vector<std::uint64_t> node_counts;
  std::vector<std::uint64_t> counts;
  std::shared_ptr<const Topology> topology;  // null: all ranks are on one node
};

// Elements of rank r's block, and its offset in the buffer of all blocks; r = size: the end.
inline std::uint64_t block_count(const CollectiveSpec& spec, int r) {
  return spec.counts.empty() ? spec.count : spec.counts[static_cast<std::size_t>(r)];
}
inline std::uint64_t block_offset(const CollectiveSpec& spec, int r) {
  if (spec.counts.empty()) return static_cast<std::uint64_t>(r) * spec.count;
  return std::accumulate(spec.counts.begin(), spec.counts.begin() + r, std::uint64_t{0});
}

std::uint64_t input_count(const CollectiveSpec& spec);
std::uint64_t output_count(const CollectiveSpec& spec);
// Bytes of the larger buffer, on the root if there is one.
std::uint64_t largest_buffer(const CollectiveSpec& spec);

// `count`; for uneven blocks their mean, with each block's share rounded down.
inline std::uint64_t mean_count(const CollectiveSpec& spec) {
  if (spec.counts.empty()) return spec.count;
  std::uint64_t mean = 0;
  for (const std::uint64_t block : spec.counts) mean += block / spec.counts.size();
  return mean;
}

// Builders' parameters, equal on all ranks.
struct Tuning {
  std::uint64_t chunk_bytes = 256 * 1024;    // target message size of pipelined algorithms
  int max_lanes = 4;                         // 1..kMaxLanes
  std::uint64_t staging_bytes = 256 * 1024;  // shared memory per rank for an operation
  std::uint64_t shortest_chunk = 8 * 1024;   // bytes, of chunks that pass through Staging in a pipeline
  bool in_place = false;                     // large data in Staging is a mirror (schedule/schedule.hpp)
  bool no_messages = false;                  // shared-memory schedules use none, however long they become
  // For phases: ranks of this node share memory, else they use messages. May differ between nodes.
  bool node_shares = false;
  // Ranks per node that cross the network in a two-level all-reduce; 0: as many as the smallest node has.
  int leaders = 0;
};

}  // namespace mpi_gdr
