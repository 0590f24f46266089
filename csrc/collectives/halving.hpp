// All-reduce by halving and doubling over a butterfly, and the halving alone. Pure, thread-safe.
//   T = 2 lg p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; lanes overlap gamma with beta; half of alpha and
//   beta
//       for the halving alone
//       p not a power of two (p' the next lower one takes its place): + 2 alpha + 2 n beta + n gamma
// Source: Rabenseifner; Thakur et al., see build.hpp.
#pragma once

#include <functional>
#include <vector>

#include "collectives/build.hpp"
#include "collectives/fold.hpp"

namespace mpi_gdr::collectives {

// A step of a butterfly, for one virtual rank: it and its peer halve what both work on.
struct Pairing {
  int peer;    // virtual rank
  bool upper;  // this rank keeps the upper half, and its values come second in the Reduce
};
// By step. Two ranks that meet in a step have kept the same halves in all steps before.
using Butterfly = std::vector<Pairing>;

// Step i pairs virtual ranks at distance 2^i, the lower block of ranks first in every Reduce: the expression
// of an element is that of recursive doubling, on whichever rank it is computed.
Butterfly hypercube(int virtual_rank, int power);

// Where a range of elements of the vector stands in memory.
using SliceOf = std::function<Slice(const Slice& range)>;

inline Slice kept_half(const Slice& range, const Pairing& step) {
  return piece(range, 2, step.upper ? 1 : 0);
}
inline Slice given_half(const Slice& range, const Pairing& step) {
  return piece(range, 2, step.upper ? 0 : 1);
}

// Writes the rounds of one lane for a rank that does not sit out. `from` is where the rank's own values stand
// before the first step, `to` where its partial results go; `incoming` is scratch for the first kept half.
// Returns the range this rank works on before each step, and last the one that it holds complete.
std::vector<Slice> halve(ScheduleWriter& writer, const Fold& fold, const Butterfly& steps, const Slice& range,
                         const SliceOf& from, const SliceOf& to, const Slice& incoming, Scale last);

// An element is reduced on one rank and then travels as bytes: equal bits everywhere.
void halve_and_double(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning,
                      Butterfly (*butterfly)(int virtual_rank, int power));

}  // namespace mpi_gdr::collectives
