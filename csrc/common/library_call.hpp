// A call of a library that moves device memory inside a node (NCCL).
#pragma once

#include <cstdint>

namespace mpi_gdr {

// Offsets and counts in elements. `count` as in nccl.h: of a block for ReduceScatter and AllGather.
struct LibraryCall {
  enum class Kind : std::uint8_t { AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Send, Receive };
  Kind kind;
  std::uint64_t input, output, count;
  int peer = -1;  // the root, or the other rank
  bool operator==(const LibraryCall&) const = default;
};

}  // namespace mpi_gdr
