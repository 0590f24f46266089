// All-reduce over Bine (binomial negabinary) butterflies: Rabenseifner's algorithm between nearer ranks. Step
// i pairs ranks that are |1 - 2 + 4 - ... of i + 1 terms| apart, about 2/3 of 2^i: up to a third fewer bytes
// cross slow links between neighbourhoods. The largest messages go the shortest way.
// Source: De Sensi, Pasqualoni, Piarulli, Bonato, Ba, Turisini, Domke, Hoefler, "Bine Trees: Enhancing
// Collective Operations by Optimizing Communication Locality", SC 2025.
// Unlike in the paper, a rank ends up with a block that makes each message contiguous, not with its own.
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
