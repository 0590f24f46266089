// All-to-all by pairwise exchange (Thakur et al., see build.hpp). Counts differ by rank, so the number of
// lanes depends on the group's size only, and a block's lane on the step and the length, which sender and
// receiver share. Long blocks go one at a time: concurrent ones slow each other down on a link.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {
namespace {

constexpr std::size_t kOneLane = std::size_t{4} << 20;  // bytes: longer blocks use lane 0 only

}  // namespace

void all_to_all_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  exchange_pairwise(writer, spec, Exchange(spec), tuning);
}

void exchange_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Exchange& blocks,
                       const Tuning& tuning) {
  const int p = spec.size;
  const auto& [sent, received] = blocks;
  const int lanes = std::min(tuning.max_lanes, p - 1);
  const auto lane_of = [&](int step, const Slice& block) {
    return block.count * item_size(spec.dtype) < kOneLane ? (step - 1) % lanes : 0;
  };
  for (int lane = 0; lane < lanes; ++lane) {
    writer.lane();
    for (int s = 1; s < p; ++s) {
      const int to = wrap(spec.rank + s, p), from = wrap(spec.rank - s, p);
      const Slice &in = received[static_cast<std::size_t>(from)], &out = sent[static_cast<std::size_t>(to)];
      const bool receives = lane_of(s, in) == lane, sends = lane_of(s, out) == lane;
      const bool copies = s == 1 && lane == 0;
      if (receives || sends || copies) writer.round();
      if (receives) writer.recv(from, in);
      if (sends) writer.send(to, out);
      if (copies) {
        const auto self = static_cast<std::size_t>(spec.rank);
        writer.copy(received[self], sent[self]);
      }
    }
  }
}

}  // namespace mpi_gdr::collectives
