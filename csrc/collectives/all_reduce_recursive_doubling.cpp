// All-reduce by recursive doubling (Thakur et al., see build.hpp). Every Reduce takes the lower ranks'
// values first: all ranks get equal bits even where order matters (rounding, NaN, sign of zero).
#include "collectives/build.hpp"
#include "collectives/fold.hpp"

namespace mpi_gdr::collectives {

void all_reduce_recursive_doubling(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.lane();
  const Slice output{Buffer::Output, 0, spec.count};
  const Contribution contribution(writer, spec);
  contribution.scale({Buffer::Input, 0, spec.count});
  Slice current = contribution.at({Buffer::Input, 0, spec.count});  // partial result

  const Fold fold(spec.size, spec.rank);
  if (fold.sits_out) {
    writer.round();
    writer.send(fold.partner, current);
    writer.round();
    writer.recv(fold.partner, output);
    return;
  }

  const Slice incoming = writer.scratch(spec.count);
  if (fold.in_pair) {
    writer.round();
    writer.recv(fold.partner, incoming);
    writer.round();
    writer.reduce(output, {current, incoming});
    current = output;
  }
  for (int distance = 1; distance < fold.power; distance *= 2) {
    const int peer = fold.actual(fold.virtual_rank ^ distance);
    writer.round();
    writer.send(peer, current);
    writer.recv(peer, incoming);
    writer.round();
    const Scale scale = 2 * distance == fold.power ? final_scale(spec.op) : Scale::None;
    if (fold.virtual_rank & distance)
      writer.reduce(output, {incoming, current}, scale);
    else
      writer.reduce(output, {current, incoming}, scale);
    current = output;
  }
  if (fold.in_pair) {
    writer.round();
    writer.send(fold.partner, output);
  }
}

}  // namespace mpi_gdr::collectives
