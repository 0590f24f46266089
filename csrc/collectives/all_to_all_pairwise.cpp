// All-to-all by pairwise exchange: in step s every rank sends to rank + s and receives from rank - s.
//   T = (p-1) alpha + n beta, n = what one rank sends to others; lanes take turns, so that several steps are
//   in flight steps p-1, bytes sent per rank n, reductions 0
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 2005.
//
// Counts differ from rank to rank, so that the number of lanes follows from the group's size alone.
#include "collectives/build.hpp"

namespace mpigdr::collectives {

void all_to_all_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const int p = spec.size;
  const auto [sent, received] = Exchange(spec);
  const int lanes = std::min(tuning.max_lanes, p - 1);
  for (int lane = 0; lane < lanes; ++lane) {
    writer.lane();
    for (int s = lane + 1; s < p; s += lanes) {
      const int to = wrap(spec.rank + s, p), from = wrap(spec.rank - s, p);
      writer.round();
      writer.recv(from, received[static_cast<std::size_t>(from)]);
      writer.send(to, sent[static_cast<std::size_t>(to)]);
      if (s == 1) {
        const auto self = static_cast<std::size_t>(spec.rank);
        writer.copy(received[self], sent[self]);
      }
    }
  }
}

}  // namespace mpigdr::collectives
