// Reduce-scatter by recursive halving, the first phase of Rabenseifner's algorithms. Pure, thread-safe.
//   T = lg p alpha + (p-1)/p n (beta + gamma), p a power of two
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; Thakur, Rabenseifner,
// Gropp, IJHPCA 2005.
//
// Step i pairs virtual ranks at distance 2^i, the lower block of ranks first in every Reduce: the expression
// of an element is that of recursive doubling, on whichever rank it is computed.
#pragma once

#include <functional>
#include <vector>

#include "collectives/build.hpp"
#include "collectives/fold.hpp"

namespace mpigdr::collectives {

// Where a range of elements of the vector stands in memory.
using Place = std::function<Slice(const Slice& range)>;

// The half of `range` that the virtual rank keeps in the step of that distance, or the one that it gives.
inline Slice kept_half(const Slice& range, int virtual_rank, int distance) {
  return piece(range, 2, virtual_rank & distance ? 1 : 0);
}
inline Slice given_half(const Slice& range, int virtual_rank, int distance) {
  return piece(range, 2, virtual_rank & distance ? 0 : 1);
}

// Writes the rounds of one lane for a rank that does not sit out. `from` is where the rank's own values stand
// before the first step, `to` where its partial results go; `incoming` is scratch for the first kept half.
// Returns the range this rank works on before each step, and last the one that it holds complete.
std::vector<Slice> halve(ScheduleWriter& writer, const Fold& fold, const Slice& range, const Place& from,
                         const Place& to, const Slice& incoming, Scale last);

}  // namespace mpigdr::collectives
