// All-reduce after Rabenseifner: reduce-scatter by recursive halving, all-gather by recursive doubling.
//   T = 2 lg p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; lanes overlap gamma with beta
//       p not a power of two (p' the next lower one takes its place): + 2 alpha + 2 n beta + n gamma
//   steps 2 floor(lg p) (+ 2), bytes sent per rank 2(p'-1)/p' n (+ n), reductions (p'-1)/p' n (+ n)
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; Thakur, Rabenseifner,
// Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 2005.
//
// The expression of an element is that of recursive_doubling, so that the two also agree with each other.
#include "collectives/halving.hpp"

namespace mpi_gdr::collectives {

void all_reduce_rabenseifner(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  halve_and_double(writer, spec, tuning, hypercube);
}

}  // namespace mpi_gdr::collectives
