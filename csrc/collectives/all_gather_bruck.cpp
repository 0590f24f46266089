// All-gather after Bruck (Bruck et al., see build.hpp). Scratch n holds the blocks in rank order, this rank's
// block first: each message is contiguous, but a rotation at the end copies n. An all-reduce of short inputs
// gathers all inputs in the same way, in scratch p n, and folds them in one pass, in rank order.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void all_gather_bruck(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  const int p = spec.size, rank = spec.rank;
  const Blocks blocks(spec);
  if (blocks.some_empty()) writer.one_way();
  writer.lane();
  const Slice input{Buffer::Input, 0, blocks.count(rank)};
  const Slice memory = rank == 0 ? Slice{Buffer::Output, 0, blocks.total()} : writer.scratch(blocks.total());
  const std::uint64_t behind = blocks.total() - blocks.run(Buffer::Output, 0, rank).count;
  // Where the block of rank + k begins in `memory`.
  const auto boundary = [&](int k) {
    return rank + k <= p ? blocks.run(Buffer::Output, rank, k).count
                         : behind + blocks.run(Buffer::Output, 0, rank + k - p).count;
  };
  const auto stretch = [&](int first, int number) {
    const std::uint64_t begin = boundary(first);
    return Slice{memory.buffer, memory.offset + begin, boundary(first + number) - begin};
  };
  for (int distance = 1; distance < p; distance *= 2) {
    const int number = std::min(distance, p - distance);
    writer.round();
    writer.recv(wrap(rank + distance, p), stretch(distance, number));
    if (distance == 1) {  // from Input: need not wait for the copy
      writer.send(wrap(rank - distance, p), input);
      if (p > 2 || rank == 0) writer.copy(stretch(0, 1), input);  // else it is never read
    } else {
      writer.send(wrap(rank - distance, p), stretch(0, number));
    }
  }
  if (rank == 0) return;
  writer.round();
  writer.copy(blocks.at(Buffer::Output, rank), input);
  writer.copy(blocks.run(Buffer::Output, rank + 1, p - rank - 1), stretch(1, p - rank - 1));
  writer.copy(blocks.run(Buffer::Output, 0, rank), stretch(p - rank, rank));
}

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
