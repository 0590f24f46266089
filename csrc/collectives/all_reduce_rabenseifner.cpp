// All-reduce after Rabenseifner: reduce-scatter by recursive halving, all-gather by recursive doubling.
//   T = 2 lg p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; lanes overlap gamma with beta
//       p not a power of two (p' the next lower one takes its place): + 2 alpha + 2 n beta + n gamma
//   steps 2 floor(lg p) (+ 2), bytes sent per rank 2(p'-1)/p' n (+ n), reductions (p'-1)/p' n (+ n)
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; Thakur, Rabenseifner,
// Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 2005.
//
// An element is reduced on one rank and then travels as bytes: equal bits everywhere. Its expression is the
// one of recursive_doubling, so that the two also agree with each other.
#include "collectives/halving.hpp"

namespace mpigdr::collectives {

void all_reduce_rabenseifner(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Fold fold(spec.size, spec.rank);
  const Contribution contribution(writer, spec);
  const Place own = [&](const Slice& range) {
    return contribution.at({Buffer::Input, range.offset, range.count});
  };
  const Place output = [](const Slice& range) { return Slice{Buffer::Output, range.offset, range.count}; };
  // The smallest message is what one rank reduces.
  const Pipeline pipeline(spec.count / static_cast<std::uint64_t>(fold.power), spec, tuning);

  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const Slice range = pipeline.lane_slice({Buffer::Output, 0, spec.count}, lane);
    contribution.scale({Buffer::Input, range.offset, range.count});
    if (fold.sits_out) {
      writer.round();
      writer.send(fold.partner, own(range));
      writer.round();
      writer.recv(fold.partner, output(range));
      continue;
    }
    const Slice incoming =
        writer.scratch(fold.in_pair ? range.count : kept_half(range, fold.virtual_rank, 1).count);
    if (fold.in_pair) {
      writer.round();
      writer.recv(fold.partner, incoming);
      writer.round();
      writer.reduce(output(range), {own(range), incoming});
    }
    const std::vector<Slice> ranges =
        halve(writer, fold, range, fold.in_pair ? output : own, output, incoming, final_scale(spec.op));
    std::size_t step = ranges.size() - 1;
    for (int distance = fold.power / 2; distance > 0; distance /= 2) {
      const int peer = fold.actual(fold.virtual_rank ^ distance);
      const Slice complete = ranges[step--];
      writer.round();
      writer.recv(peer, output(given_half(ranges[step], fold.virtual_rank, distance)));
      writer.send(peer, output(complete));
    }
    if (fold.in_pair) {
      writer.round();
      writer.send(fold.partner, output(range));
    }
  }
}

}  // namespace mpigdr::collectives
