#include "collectives/halving.hpp"

namespace mpigdr::collectives {

std::vector<Slice> halve(ScheduleWriter& writer, const Fold& fold, const Slice& range, const Place& from,
                         const Place& to, const Slice& incoming, Scale last) {
  std::vector<Slice> ranges{range};
  for (int distance = 1; distance < fold.power; distance *= 2) {
    const Place& current = distance == 1 ? from : to;
    const int peer = fold.actual(fold.virtual_rank ^ distance);
    const Slice kept = kept_half(ranges.back(), fold.virtual_rank, distance);
    const Slice arrived{incoming.buffer, incoming.offset, kept.count};
    writer.round();
    writer.recv(peer, arrived);
    writer.send(peer, current(given_half(ranges.back(), fold.virtual_rank, distance)));
    writer.round();
    const Scale scale = 2 * distance == fold.power ? last : Scale::None;
    if (fold.virtual_rank & distance)
      writer.reduce(to(kept), {arrived, current(kept)}, scale);
    else
      writer.reduce(to(kept), {current(kept), arrived}, scale);
    ranges.push_back(kept);
  }
  return ranges;
}

}  // namespace mpigdr::collectives
