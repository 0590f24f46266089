// The registry: every algorithm by name, and the contract of its builder. selection_table.hpp chooses among
// them. Pure functions: no MPI, no torch, no CUDA, no state. Thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

// Writes what one rank of several does, of a valid spec and tuning. The caller finishes the writer.
using Builder = void (*)(ScheduleWriter&, const CollectiveSpec&, const Tuning&);

struct Algorithm {
  Collective collective;
  const char* name;        // "ring"
  const char* summary;     // its cost, for docs/algorithms.md
  Builder write;           // nullptr for "native"
  bool shared = false;     // only for ranks that share memory (Schedule::shared)
  bool two_level = false;  // chosen only for nodes of several ranks (Topology::two_level)
  // Every element of its result is one left fold over the ranks' contributions, in rank order and rounded
  // once; with two_level: where the ranks of each node follow each other and sums are kept in the dtype.
  bool ordered = false;

  // Every element of its result is one Reduce of all contributions, which may be an exact sum.
  bool flat() const { return ordered && !two_level; }
  // It can keep such bits of a reduction.
  bool serves(Bits bits) const { return bits == Bits::Any || (bits == Bits::Order ? ordered : flat()); }
  // The MPI library's own collective, run by the transport: there is no schedule to build.
  bool native() const { return !write; }
  // The schedule of rank `spec.rank`. Throws InvalidUsage that names a bad argument.
  SchedulePtr build(const CollectiveSpec& spec, const Tuning& tuning) const;
};

// Every algorithm of every collective (algorithms.inc). Each runs for every size >= 1 and every count.
const std::vector<Algorithm>& algorithms();

// nullptr if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

// Only an all-reduce has memory for the product with a factor that other ranks may read: the others then run
// "staged" instead of what reads tensors of other ranks.
constexpr bool only_through_staging(Collective collective, ReduceOp op) {
  return op == ReduceOp::PreMulSum && reduces(collective) && collective != Collective::AllReduce;
}

}  // namespace mpi_gdr
