// Broadcast along a binomial tree.
//   T = ceil(lg p) (alpha + n beta)
//   steps ceil(lg p), bytes sent by the root n ceil(lg p), reductions 0
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 2005.
#include "collectives/build.hpp"

namespace mpigdr::collectives {

void broadcast_binomial(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.one_way();
  writer.lane();
  const Slice data{Buffer::Output, 0, spec.count};
  const int relative = wrap(spec.rank - spec.root, spec.size);
  const auto absolute = [&](int r) { return wrap(r + spec.root, spec.size); };

  int reach = 1;  // this rank's subtree holds the relative ranks [relative, relative + reach)
  while (reach < spec.size && relative % (2 * reach) == 0) reach *= 2;
  if (relative != 0) {
    writer.round();
    writer.recv(absolute(relative - reach), data);
  }
  writer.round();
  for (int distance = reach / 2; distance > 0; distance /= 2)  // the deepest subtree first
    if (relative + distance < spec.size) writer.send(absolute(relative + distance), data);
}

}  // namespace mpigdr::collectives
