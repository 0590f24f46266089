// All-reduce by halving and doubling over a butterfly, and the halving alone; lanes overlap reductions and
// transfers. Pure, thread-safe. Sources: Rabenseifner; Thakur et al., see build.hpp.
#pragma once

#include <functional>
#include <vector>

#include "collectives/build.hpp"
#include "collectives/fold.hpp"

namespace mpi_gdr::collectives {

// A step of a butterfly: a virtual rank and its peer halve their common range.
struct Pairing {
  int peer;    // virtual rank
  bool upper;  // this rank keeps the upper half, and its values come second in the Reduce
};
// By step. The two ranks of a pair have kept the same halves in all earlier steps.
using Butterfly = std::vector<Pairing>;

// Step i pairs virtual ranks at distance 2^i. The lower block of ranks comes first in every Reduce, so that
// an element's operands are combined in the same order as in recursive doubling, on any rank.
Butterfly hypercube(int virtual_rank, int power);

// Where a range of the vector's elements is in memory.
using SliceOf = std::function<Slice(const Slice& range)>;

inline Slice kept_half(const Slice& range, const Pairing& step) {
  return piece(range, 2, step.upper ? 1 : 0);
}
inline Slice given_half(const Slice& range, const Pairing& step) {
  return piece(range, 2, step.upper ? 0 : 1);
}

// Writes the rounds of one lane for a rank with !Fold::sits_out. `from`: the rank's values before the first
// step; `to`: its partial results; `incoming`: scratch for the first kept half. Returns the range before each
// step, and last the one that this rank holds complete.
std::vector<Slice> halve(ScheduleWriter& writer, const Fold& fold, const Butterfly& steps, const Slice& range,
                         const SliceOf& from, const SliceOf& to, const Slice& incoming, Scale last);

// An element is reduced on one rank and then copied: equal bits on all ranks.
void halve_and_double(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning,
                      Butterfly (*butterfly)(int virtual_rank, int power));

}  // namespace mpi_gdr::collectives
