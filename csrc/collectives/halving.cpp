#include "collectives/halving.hpp"

namespace mpi_gdr::collectives {

Butterfly hypercube(int virtual_rank, int power) {
  Butterfly steps;
  for (int distance = 1; distance < power; distance *= 2)
    steps.push_back({virtual_rank ^ distance, (virtual_rank & distance) != 0});
  return steps;
}

std::vector<Slice> halve(ScheduleWriter& writer, const Fold& fold, const Butterfly& steps, const Slice& range,
                         const SliceOf& from, const SliceOf& to, const Slice& incoming, Scale last) {
  std::vector<Slice> ranges{range};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const SliceOf& current = i == 0 ? from : to;
    const int peer = fold.actual(steps[i].peer);
    const Slice kept = kept_half(ranges.back(), steps[i]);
    const Slice arrived{incoming.buffer, incoming.offset, kept.count};
    writer.round();
    writer.recv(peer, arrived);
    writer.send(peer, current(given_half(ranges.back(), steps[i])));
    writer.round();
    const Scale scale = i + 1 == steps.size() ? last : Scale::None;
    if (steps[i].upper)
      writer.reduce(to(kept), {arrived, current(kept)}, scale);
    else
      writer.reduce(to(kept), {current(kept), arrived}, scale);
    ranges.push_back(kept);
  }
  return ranges;
}

void halve_and_double(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning,
                      Butterfly (*butterfly)(int virtual_rank, int power)) {
  const Fold fold(spec.size, spec.rank);
  const Butterfly steps = butterfly(fold.virtual_rank, fold.power);
  const Contribution contribution(writer, spec);
  const SliceOf own = [&](const Slice& range) {
    return contribution.at({Buffer::Input, range.offset, range.count});
  };
  const SliceOf output = [](const Slice& range) { return Slice{Buffer::Output, range.offset, range.count}; };
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
    const Slice incoming = writer.scratch(fold.in_pair ? range.count : kept_half(range, steps[0]).count);
    if (fold.in_pair) {
      writer.round();
      writer.recv(fold.partner, incoming);
      writer.round();
      writer.reduce(output(range), {own(range), incoming});
    }
    const std::vector<Slice> ranges = halve(writer, fold, steps, range, fold.in_pair ? output : own, output,
                                            incoming, final_scale(spec.op));
    for (std::size_t step = steps.size(); step-- > 0;) {
      const int peer = fold.actual(steps[step].peer);
      writer.round();
      writer.recv(peer, output(given_half(ranges[step], steps[step])));
      writer.send(peer, output(ranges[step + 1]));
    }
    if (fold.in_pair) {
      writer.round();
      writer.send(fold.partner, output(range));
    }
  }
}

void all_reduce_rabenseifner(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  halve_and_double(writer, spec, tuning, hypercube);
}

}  // namespace mpi_gdr::collectives
