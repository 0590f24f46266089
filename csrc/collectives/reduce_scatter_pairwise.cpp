// Reductions by pairwise exchange: every rank gets its block from every other rank and folds all of them at
// once; then the blocks go to whoever takes the result.
//   reduce_scatter  T = (p-1) (alpha + n/p beta) + (p-1)/p n gamma, n = the whole input; lanes overlap gamma
//                   with beta; steps p-1, bytes sent per rank (p-1)/p n, scratch (p-1)/p n
//   all_reduce      T = (p-1) (alpha + n/p beta) more, around a ring
//   reduce          T = alpha + (p-1)/p n beta more, for the root
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 2005.
//
// The fold is in rank order and one Reduce: 16-bit floats are rounded once, however many ranks there are.
#include "collectives/build.hpp"

namespace mpigdr::collectives {
namespace {

// The blocks of a collective that gives each rank the whole, or none, in nearly equal pieces.
class Pieces {
 public:
  explicit Pieces(const CollectiveSpec& spec)
      : count_(spec.count), p_(static_cast<std::uint64_t>(spec.size)) {
    for (std::uint64_t b = 0; b < p_; ++b)
      smallest_ = std::min(smallest_, piece({Buffer::Input, 0, count_}, p_, b).count);
  }
  Slice at(Buffer buffer, int block) const {
    return piece({buffer, 0, count_}, p_, static_cast<std::uint64_t>(block));
  }
  std::uint64_t smallest() const { return smallest_; }

 private:
  std::uint64_t count_, p_, smallest_ = count_;
};

// All of a lane's part of the exchange. `block(r)`: rank r's in the Input; `arrived`: room for this rank's of
// all others.
template <typename Block>
void fold_block(ScheduleWriter& writer, const CollectiveSpec& spec, const Pipeline& pipeline, int lane,
                const Contribution& contribution, const Slice& arrived, const Slice& result, Block block) {
  const int p = spec.size, rank = spec.rank;
  const auto input = [&](int r) { return pipeline.lane_slice(block(r), lane); };
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
  writer.round();
  writer.reduce(pipeline.lane_slice(result, lane), sources, final_scale(spec.op));
}

}  // namespace

void reduce_scatter_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Blocks blocks(spec);
  if (blocks.some_empty()) writer.one_way();
  const Slice result{Buffer::Output, 0, blocks.count(spec.rank)};
  const Slice arrived = writer.scratch(result.count * static_cast<std::uint64_t>(spec.size - 1));
  const Contribution contribution(writer, spec);
  const Pipeline pipeline(blocks.smallest(), spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    fold_block(writer, spec, pipeline, lane, contribution, arrived, result,
               [&](int r) { return blocks.at(Buffer::Input, r); });
  }
}

void all_reduce_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const int p = spec.size, rank = spec.rank;
  const Pieces pieces(spec);
  const Slice result = pieces.at(Buffer::Output, rank);
  const Slice arrived = writer.scratch(result.count * static_cast<std::uint64_t>(p - 1));
  const Contribution contribution(writer, spec);
  const Pipeline pipeline(pieces.smallest(), spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    fold_block(writer, spec, pipeline, lane, contribution, arrived, result,
               [&](int r) { return pieces.at(Buffer::Input, r); });
    const auto part = [&](int owner) {
      return pipeline.lane_slice(pieces.at(Buffer::Output, wrap(owner, p)), lane);
    };
    for (int s = 0; s < p - 1; ++s) {
      writer.round();
      writer.recv(wrap(rank - 1, p), part(rank - s - 1));
      writer.send(wrap(rank + 1, p), part(rank - s));
    }
  }
}

void reduce_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const bool is_root = spec.rank == spec.root;
  const Pieces pieces(spec);
  writer.one_way();  // who has an empty piece hears from nobody
  const std::uint64_t count = pieces.at(Buffer::Input, spec.rank).count;
  const Slice result = is_root ? pieces.at(Buffer::Output, spec.rank) : writer.scratch(count);
  const Slice arrived = writer.scratch(count * static_cast<std::uint64_t>(spec.size - 1));
  const Contribution contribution(writer, spec);
  const Pipeline pipeline(pieces.smallest(), spec, tuning);
  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    fold_block(writer, spec, pipeline, lane, contribution, arrived, result,
               [&](int r) { return pieces.at(Buffer::Input, r); });
    writer.round();
    if (!is_root) writer.send(spec.root, pipeline.lane_slice(result, lane));
    for (int k = 1; is_root && k < spec.size; ++k) {
      const int from = wrap(spec.rank + k, spec.size);
      writer.recv(from, pipeline.lane_slice(pieces.at(Buffer::Output, from), lane));
    }
  }
}

}  // namespace mpigdr::collectives
