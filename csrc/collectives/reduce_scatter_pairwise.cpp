// Reductions by pairwise exchange (Thakur et al., see build.hpp): every rank receives its block from every
// other rank and folds all of them; then the blocks go to the ranks that take the result. The fold is in rank
// order and one Reduce: 16-bit floats are rounded once, whatever the number of ranks. Scratch (p-1)/p n.
#include "collectives/build.hpp"

namespace mpi_gdr::collectives {
namespace {

// Folds this rank's block by lanes and calls then(folded, part); part(buffer, r): the lane's part of block r.
template <typename Then>
void fold_blocks(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning,
                 const Blocks& blocks, const Slice& result, Then then) {
  const int p = spec.size, rank = spec.rank;
  const Slice arrived = writer.scratch(result.count * static_cast<std::uint64_t>(p - 1));
  const Contribution contribution(writer, spec);
  const Pipeline pipeline(blocks.smallest(), spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const auto part = [&](Buffer buffer, int r) { return pipeline.lane_slice(blocks.at(buffer, r), lane); };
    const auto input = [&](int r) { return part(Buffer::Input, r); };
    const auto own = [&](int r) { return contribution.at(input(r)); };
    const auto place = [&](int source) {
      const auto slot = static_cast<std::uint64_t>(source < rank ? source : source - 1);
      return pipeline.lane_slice({Buffer::Scratch, arrived.offset + slot * result.count, result.count}, lane);
    };
    contribution.scale(p, input);
    for (int s = 1; s < p; ++s) {
      const int to = wrap(rank + s, p), from = wrap(rank - s, p);
      writer.round();
      writer.recv(from, place(from));
      writer.send(to, own(to));
    }
    std::vector<Slice> sources;
    for (int source = 0; source < p; ++source) sources.push_back(source == rank ? own(rank) : place(source));
    const Slice folded = pipeline.lane_slice(result, lane);
    writer.round();
    writer.reduce(folded, sources, final_scale(spec.op));
    then(folded, part);
  }
}

}  // namespace

void reduce_scatter_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  if (blocks.some_empty()) writer.one_way();
  fold_blocks(writer, spec, tuning, blocks, {Buffer::Output, 0, blocks.count(spec.rank)},
              [](const Slice&, const auto&) {});
}

void all_reduce_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const int p = spec.size, rank = spec.rank;
  const Blocks pieces(spec.count, p);
  fold_blocks(writer, spec, tuning, pieces, pieces.at(Buffer::Output, rank),
              [&](const Slice&, const auto& part) {
                const auto result = [&](int owner) { return part(Buffer::Output, wrap(owner, p)); };
                for (int s = 0; s < p - 1; ++s) {
                  writer.round();
                  writer.recv(wrap(rank - 1, p), result(rank - s - 1));
                  writer.send(wrap(rank + 1, p), result(rank - s));
                }
              });
}

void reduce_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const bool is_root = spec.rank == spec.root;
  const Blocks pieces(spec.count, spec.size);
  writer.one_way();  // a rank with an empty piece receives nothing
  const Slice own = pieces.at(Buffer::Output, spec.rank);
  fold_blocks(writer, spec, tuning, pieces, is_root ? own : writer.scratch(own.count),
              [&](const Slice& folded, const auto& part) {
                writer.round();
                if (!is_root) writer.send(spec.root, folded);
                for (int k = 1; is_root && k < spec.size; ++k) {
                  const int from = wrap(spec.rank + k, spec.size);
                  writer.recv(from, part(Buffer::Output, from));
                }
              });
}

}  // namespace mpi_gdr::collectives
