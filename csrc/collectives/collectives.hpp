// The registry of algorithms, and the contract of their builders. Pure functions, thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

// Writes one rank's schedule, for a valid spec of at least two ranks. The caller finishes the writer.
using Builder = void (*)(ScheduleWriter&, const CollectiveSpec&, const Tuning&);

struct Algorithm {
  Collective collective;
  const char* name;        // "ring"
  const char* summary;     // its cost, for docs/algorithms.md
  Builder write;           // nullptr for "native"
  bool shared = false;     // only for ranks that share memory (Schedule::shared)
  bool two_level = false;  // chosen only for nodes of several ranks (Topology::two_level)
  // Each element of the result is one left fold over the contributions, in rank order and rounded once. With
  // two_level only if each node's ranks are consecutive and the dtype keeps_sums().
  bool ordered = false;

  // Each element of the result is one Reduce of all contributions: sums can be exact (Schedule::flat).
  bool flat() const { return ordered && !two_level; }
  bool serves(Bits bits) const { return bits == Bits::Any || (bits == Bits::Order ? ordered : flat()); }
  // The MPI library's own collective, run by the transport: no schedule.
  bool native() const { return !write; }
  // The schedule of rank `spec.rank`. Throws InvalidUsage that names a bad argument.
  SchedulePtr build(const CollectiveSpec& spec, const Tuning& tuning) const;
};

// All of algorithms.inc. Each runs for every size >= 1 and every count.
const std::vector<Algorithm>& algorithms();

// nullptr if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

// The product with a factor must be in memory that other ranks may read, which only an all-reduce has (its
// Output). Other reductions run "staged" instead of an algorithm that reads other ranks' tensors.
constexpr bool only_through_staging(Collective collective, ReduceOp op) {
  return op == ReduceOp::PreMulSum && reduces(collective) && collective != Collective::AllReduce;
}

}  // namespace mpi_gdr
