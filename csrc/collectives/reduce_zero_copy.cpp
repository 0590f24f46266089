// Reductions inside a node: each rank reduces one part of all ranks' inputs where they are, and stores it
// where it is wanted.
//   all_reduce      T = 2 barriers + 2n/p per rank through each of p buffers, the least in place
//   reduce          T = 2 barriers + n read and n/p written per rank
//   reduce_scatter  T = 2 barriers + pn read and n written, for blocks of n
//   one fold over all ranks in rank order, rounded once
// Sources: see shared.hpp.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {
namespace {

// The part `from` of all ranks into `to`, and on to there in the memory of all others.
void reduce_tiles(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning, const Slice& from,
                  const Slice& to, bool to_others = false) {
  const Tiles sources(from, spec, tuning), results(to, spec, tuning);
  meet(writer, spec);
  for (std::uint64_t i = 0; i < results.number(); ++i) {
    const Slice result = results.at(i);
    writer.round();
    writer.reduce(result, of_all(sources.at(i), spec.size), final_scale(spec.op));
    if (!to_others) continue;
    writer.round();
    for (int k = 1; k < spec.size; ++k) writer.copy(of(result, wrap(spec.rank + k, spec.size)), result);
  }
  meet(writer, spec);
}

}  // namespace

void all_reduce_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks pieces(spec.count, spec.size);
  const Contribution contribution(writer, spec);
  contribution.scale({Buffer::Input, 0, spec.count});  // before the others read it
  reduce_tiles(writer, spec, tuning, contribution.at(pieces.at(Buffer::Input, spec.rank)),
               pieces.at(Buffer::Output, spec.rank), true);
}

void reduce_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks pieces(spec.count, spec.size);
  reduce_tiles(writer, spec, tuning, pieces.at(Buffer::Input, spec.rank),
               of(pieces.at(Buffer::Output, spec.rank), spec.root));
}

void reduce_scatter_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  reduce_tiles(writer, spec, tuning, blocks.at(Buffer::Input, spec.rank),
               {Buffer::Output, 0, blocks.count(spec.rank)});
}

}  // namespace mpi_gdr::collectives
