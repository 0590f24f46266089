// All-reduce over Bine (binomial negabinary) butterflies: Rabenseifner's algorithm with smaller distances
// between peers. Step i pairs ranks at distance |1 - 2 + 4 - ...| (i + 1 terms), about 2/3 of 2^i: up to a
// third fewer bytes cross slow links. The largest messages are exchanged at the smallest distance.
// Source: De Sensi, Pasqualoni, Piarulli, Bonato, Ba, Turisini, Domke, Hoefler, "Bine Trees: Enhancing
// Collective Operations by Optimizing Communication Locality", SC 2025.
// Unlike in the paper, the reduce-scatter leaves a rank with a block that keeps all messages contiguous, not
// with the block of its number.
#include "collectives/halving.hpp"

namespace mpi_gdr::collectives {
namespace {

Butterfly negabinary(int rank, int power) {
  Butterfly steps;
  const bool odd = rank % 2 == 1;
  int distance = 0, term = 1;
  for (int bit = 1; 1 << (bit - 1) < power; ++bit, term *= -2) {
    distance += term;
    const int peer = wrap(odd ? rank - distance : rank + distance, power);
    // Among the pairs that share a range, half have this bit set in their even rank.
    const bool set = (odd ? peer : rank) >> bit & 1;
    steps.push_back({peer, set != odd});
  }
  return steps;
}

}  // namespace

void all_reduce_bine(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  halve_and_double(writer, spec, tuning, negabinary);
}

}  // namespace mpi_gdr::collectives
