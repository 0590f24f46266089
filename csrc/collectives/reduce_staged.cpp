// Reductions inside a node through shared memory, folded once over all ranks in rank order.
//   flag     every rank copies its input in; those that take the result reduce all inputs
//   staged   every rank copies in, and reduces its slice; those that take the result copy it out. In a
//            reduce-scatter a rank copies the others' blocks in, then reduces its own block
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {
namespace {

bool has_result(const CollectiveSpec& spec) { return !has_root(spec.collective) || spec.rank == spec.root; }

// Rank r reduces piece r of each chunk, its own values from Input. A pipeline: while chunk i is copied in,
// chunk i - 1 is reduced and chunk i - 2 copied out, in other parts of Staging: one synchronisation a chunk.
class StagedReduction {
 public:
  StagedReduction(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning)
      : writer_(writer),
        spec_(spec),
        p_(static_cast<std::uint64_t>(spec.size)),
        rank_(static_cast<std::uint64_t>(spec.rank)),
        // The last of a chunk's p parts holds what this rank has reduced, the others the other ranks' pieces.
        rooms_(writer, share(spec.count), p_, spec, tuning),
        each_(rooms_.each() - rooms_.each() % grain(rooms_.each())),
        in_place_(tuning.in_place) {}

  void write() {
    const bool receives = has_result(spec_);
    const std::uint64_t chunks = (spec_.count + p_ * each_ - 1) / (p_ * each_);
    for (std::uint64_t i = 0; i < chunks + 2; ++i) {
      writer_.round();
      if (i < chunks) copy_in(i);
      if (i >= 1 && i <= chunks) reduce(i - 1);
      if (i >= 2 && receives) copy_out(i - 2);
      if (i <= chunks) barrier(writer_, spec_);
    }
  }

 private:
  // Pieces of kLarge elements and more begin at multiples of 64.
  static constexpr std::uint64_t kLarge = 4096;
  static constexpr std::uint64_t grain(std::uint64_t count) { return count < kLarge ? 1 : 64; }
  // An equal share of `count` elements, rounded up to its grain: the length of all pieces but the last ones.
  std::uint64_t share(std::uint64_t count) const {
    const std::uint64_t even = (count + p_ - 1) / p_;
    return (even + grain(even) - 1) / grain(even) * grain(even);
  }

  Slice chunk(Buffer buffer, std::uint64_t i) const {
    const std::uint64_t at = i * p_ * each_;
    return {buffer, at, std::min(p_ * each_, spec_.count - at)};
  }
  Slice piece_of(Buffer buffer, std::uint64_t i, std::uint64_t r) const {
    const Slice whole = chunk(buffer, i);
    const std::uint64_t begin = std::min(r * share(whole.count), whole.count);
    return {buffer, whole.offset + begin, std::min(share(whole.count), whole.count - begin)};
  }
  // Where rank `owner` keeps the piece for rank r, or what it has reduced (r = owner).
  Slice room(std::uint64_t i, std::uint64_t owner, std::uint64_t r) const {
    const std::uint64_t part = r == owner ? p_ - 1 : r < owner ? r : r - 1;
    const Slice here = rooms_.room(i, part, piece_of(Buffer::Input, i, r).count);
    return owner == rank_ ? here : of(here, static_cast<int>(owner));
  }
  // A mirror of Input, unless the factor was applied.
  Slice filled_room(std::uint64_t i, std::uint64_t owner, std::uint64_t r) {
    const Slice there = room(i, owner, r);
    if (!in_place_ || spec_.op == ReduceOp::PreMulSum) return there;
    return writer_.mirror(there, piece_of(Buffer::Input, i, r));
  }
  // A mirror of Output if all ranks copy the result there.
  Slice result_room(std::uint64_t i, std::uint64_t r) {
    const Slice there = room(i, r, r);
    if (!in_place_ || has_root(spec_.collective)) return there;
    return writer_.mirror(there, piece_of(Buffer::Output, i, r));
  }
  void copy_in(std::uint64_t i) {
    for (std::uint64_t r = 0; r < p_; ++r)
      if (r != rank_)
        writer_.copy(filled_room(i, rank_, r), piece_of(Buffer::Input, i, r), first_scale(spec_.op));
  }
  void reduce(std::uint64_t i) {
    const Slice result = result_room(i, rank_);
    Slice own = piece_of(Buffer::Input, i, rank_);
    if (spec_.op == ReduceOp::PreMulSum) {  // this rank's factor, applied before the fold
      own = room(i, rank_, rank_);
      writer_.copy(own, piece_of(Buffer::Input, i, rank_), Scale::PreMul);
      writer_.round();
    }
    std::vector<Slice> sources;
    for (std::uint64_t r = 0; r < p_; ++r) sources.push_back(r == rank_ ? own : filled_room(i, r, rank_));
    writer_.reduce(result, sources, final_scale(spec_.op));
  }
  void copy_out(std::uint64_t i) {
    for (std::uint64_t k = 0; k < p_; ++k) {
      const std::uint64_t r = (rank_ + k) % p_;
      writer_.copy(piece_of(Buffer::Output, i, r), result_room(i, r));
    }
  }

  ScheduleWriter& writer_;
  const CollectiveSpec& spec_;
  const std::uint64_t p_, rank_;
  const StagedChunks rooms_;
  const std::uint64_t each_;  // elements of the longest piece
  const bool in_place_;
};

}  // namespace

void all_reduce_flag(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const bool receives = has_result(spec), contributes = !has_root(spec.collective) || !receives;
  const bool scaled = spec.op == ReduceOp::PreMulSum;  // each rank applies its factor in Staging
  const StagedChunks chunks(writer, spec.count, 1, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice dst = chunks.chunk({Buffer::Output, 0, spec.count}, i);
    const Slice room = chunks.room(i, 0, dst.count);
    const Slice source = chunks.chunk({Buffer::Input, 0, spec.count}, i);
    writer.round();
    if (contributes || scaled) writer.copy(room, source, first_scale(spec.op));
    barrier(writer, spec);
    if (!receives) continue;
    std::vector<Slice> sources = of_all(room, spec.size);
    if (!scaled) sources[static_cast<std::size_t>(spec.rank)] = source;
    writer.reduce(dst, sources, final_scale(spec.op));
  }
}

// With two ranks `flag` reads as much and writes less, unless in_place saves the copies.
void reduce_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  if (spec.size == 2 && !tuning.in_place)
    all_reduce_flag(writer, spec, tuning);
  else
    StagedReduction(writer, spec, tuning).write();
}

void all_reduce_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  reduce_staged(writer, spec, tuning);
}

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
