// Reductions inside a node: each rank folds one part of all ranks' inputs in place, once, in rank order.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {
namespace {

// Reduces the slice `from` of all ranks into `to`. `to_others`: also copies it to that slice of all others.
void reduce_tiles(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning, const Slice& from,
                  const Slice& to, bool to_others = false) {
  const Tiles sources(from, spec, tuning), results(to, spec, tuning);
  barrier(writer, spec);
  for (std::uint64_t i = 0; i < results.number(); ++i) {
    const Slice result = results.at(i);
    writer.round();
    writer.reduce(result, of_all(sources.at(i), spec.size), final_scale(spec.op));
    if (!to_others) continue;
    writer.round();
    for (int k = 1; k < spec.size; ++k) writer.copy(of(result, wrap(spec.rank + k, spec.size)), result);
  }
  barrier(writer, spec);
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
