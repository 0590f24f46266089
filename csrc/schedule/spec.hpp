// What a builder is told: the collective as every rank of the group sees it, plus who this rank is.
#pragma once

#include <cstdint>
#include <vector>

#include "common/types.hpp"

namespace mpigdr {

// All fields but `rank`, `send_counts` and `recv_counts` are equal on all ranks of the group, and only those
// may choose the algorithm (DESIGN section 3).
//
// `count`, in elements:
//   AllReduce, Broadcast, Reduce   the whole buffer
//   AllGather                      one rank's contribution; output holds size * count
//   ReduceScatter                  one rank's result;       input  holds size * count
//   AllToAll                       unused: send_counts[r] go to rank r, recv_counts[r] come from it, packed
//   in
//                                  rank order without gaps
//   Barrier                        0
//
// Buffers that a schedule may name, and the aliasing that it must survive (the executor skips a Copy with
// Scale::None whose two sides are the same memory):
//   AllReduce      Input, Output      Input may be Output
//   Broadcast      Output on all      (root's data stands in Output already; Input is not named)
//   Reduce         Input on all, Output on the root only; Input may be Output there. Other ranks' memory is
//   not written AllGather      Input, Output      Input may be Output's own block (offset rank * count)
//   ReduceScatter  Input, Output      Output may be Input's own block (offset rank * count)
//   AllToAll       Input, Output      never alias
struct CollectiveSpec {
  Collective collective = Collective::Barrier;
  int rank = 0;
  int size = 1;
  int root = 0;
  std::uint64_t count = 0;
  DataType dtype = DataType::UInt8;
  ReduceOp op = ReduceOp::Sum;
  std::vector<std::uint64_t> send_counts, recv_counts;
};

// Knobs of the builders, equal on all ranks.
struct Tuning {
  std::uint64_t chunk_bytes = 256 * 1024;  // target size of one message of a pipelined algorithm
  int max_lanes = 4;                       // 1..kMaxLanes
};

}  // namespace mpigdr
