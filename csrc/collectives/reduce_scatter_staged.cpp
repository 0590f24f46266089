// Reduce-scatter inside a node: a rank copies the others' blocks to its Staging, then reduces its own block.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {

void reduce_scatter_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  const StagedChunks chunks(writer, blocks.largest(), static_cast<std::uint64_t>(spec.size), spec, tuning);
  const bool scales = spec.op == ReduceOp::PreMulSum;
  const auto room = [&](std::uint64_t i, int r) {  // for rank r's block
    const Slice block = chunks.chunk(blocks.at(Buffer::Input, r), i);
    const Slice here = chunks.room(i, static_cast<std::uint64_t>(r), block.count);
    return tuning.in_place && !scales ? writer.mirror(here, block) : here;
  };
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    writer.round();
    for (int r = 0; r < spec.size; ++r) {
      if (r == spec.rank && !scales) continue;  // reduced from Input
      const Slice source = chunks.chunk(blocks.at(Buffer::Input, r), i);
      writer.copy(room(i, r), source, first_scale(spec.op));
    }
    barrier(writer, spec);
    const Slice dst = chunks.chunk({Buffer::Output, 0, blocks.count(spec.rank)}, i);
    std::vector<Slice> sources = of_all(room(i, spec.rank), spec.size);
    if (!scales)
      sources[static_cast<std::size_t>(spec.rank)] = chunks.chunk(blocks.at(Buffer::Input, spec.rank), i);
    writer.reduce(dst, sources, final_scale(spec.op));
  }
  // Other ranks read this rank's Input in place: the operation may end only when they have.
  if (tuning.in_place) barrier(writer, spec);
}

}  // namespace mpi_gdr::collectives
