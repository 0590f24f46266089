// A collective on the devices of a node as calls of NCCL. Pure functions, thread-safe.
#pragma once

#include <vector>

#include "common/library_call.hpp"
#include "schedule/scattered.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

// This rank's calls, which form one NCCL group. Not for Barrier. `where`: the pieces of the
// buffers, as for scattered(). Blocks of equal length that follow each other in memory are one call: the last
// one may be longer, which costs one more; otherwise each block is a call.
std::vector<LibraryCall> library_calls(const CollectiveSpec& spec, const Scattered& where = {});

}  // namespace mpi_gdr
