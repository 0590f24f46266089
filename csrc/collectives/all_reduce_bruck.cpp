// All-reduce of short inputs: each rank gathers all inputs, after Bruck (Bruck et al., see build.hpp), and
// folds them in one pass, in rank order. Scratch p n: the inputs in rank order, this rank's input first.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void all_reduce_bruck(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  const int p = spec.size, rank = spec.rank;
  writer.lane();
  const Slice input{Buffer::Input, 0, spec.count};
  const Contribution contribution(writer, spec);
  contribution.scale(input);
  const Slice own = contribution.at(input);
  const Slice all = writer.scratch(spec.count * static_cast<std::uint64_t>(p));
  const auto stretch = [&](int first, int number) {
    return Slice{Buffer::Scratch, all.offset + static_cast<std::uint64_t>(first) * spec.count,
                 static_cast<std::uint64_t>(number) * spec.count};
  };
  for (int distance = 1; distance < p; distance *= 2) {
    const int number = std::min(distance, p - distance);
    writer.round();
    writer.recv(wrap(rank + distance, p), stretch(distance, number));
    writer.send(wrap(rank - distance, p), distance == 1 ? own : stretch(0, number));
    if (distance == 1 && p > 2) writer.copy(stretch(0, 1), own);
  }
  std::vector<Slice> sources;
  for (int r = 0; r < p; ++r) sources.push_back(r == rank ? own : stretch(wrap(r - rank, p), 1));
  writer.round();
  writer.reduce({Buffer::Output, 0, spec.count}, sources, final_scale(spec.op));
}

}  // namespace mpi_gdr::collectives
