// Reduce after Rabenseifner: reduce-scatter by recursive halving, then a binomial gather to the root. Scratch
// n, or up to 2 n if p is not a power of two. Sources: Rabenseifner; Thakur et al., see build.hpp.
//
// The root always takes part in the halving: otherwise it would need an extra step to receive the result. For
// any root, an element's operands are combined in the same order as in all_reduce by recursive doubling. Only
// the root's Output is written.
#include "collectives/halving.hpp"

namespace mpi_gdr::collectives {

void reduce_rabenseifner(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  writer.one_way();
  const Fold fold(spec.size, spec.rank, spec.root);
  const int me = fold.virtual_rank, root = Fold(spec.size, spec.root, spec.root).virtual_rank;
  const Butterfly steps = hypercube(me, fold.power);
  const bool premul = spec.op == ReduceOp::PreMulSum, is_root = spec.rank == spec.root;
  const SliceOf input = [](const Slice& range) { return Slice{Buffer::Input, range.offset, range.count}; };
  const Pipeline pipeline(spec.count / static_cast<std::uint64_t>(fold.power), spec, tuning);

  for (int lane = 0; lane < pipeline.lanes; ++lane) {
    writer.lane();
    const Slice range = pipeline.lane_slice({Buffer::Output, 0, spec.count}, lane);
    const Slice half = kept_half(range, steps[0]);
    // Working memory holds the whole range if it is modified before the first step, else only the kept half.
    const Slice held = premul || (fold.in_pair && !fold.sits_out) ? range : half;
    const bool needs_memory = !is_root && (premul || !fold.sits_out);
    const Slice memory = writer.scratch(needs_memory ? held.count : 0);
    const SliceOf work = [=](const Slice& part) {
      return is_root ? Slice{Buffer::Output, part.offset, part.count}
                     : Slice{Buffer::Scratch, memory.offset + (part.offset - held.offset), part.count};
    };
    const SliceOf& own = premul ? work : input;
    if (premul) {
      writer.round();
      writer.copy(work(range), input(range), Scale::PreMul);
    }
    if (fold.sits_out) {
      writer.round();
      writer.send(fold.partner, own(range));
      continue;
    }
    const Slice incoming = writer.scratch(fold.in_pair ? range.count : half.count);
    if (fold.in_pair) {
      writer.round();
      writer.recv(fold.partner, incoming);
      writer.round();
      if (spec.rank < fold.partner)
        writer.reduce(work(range), {own(range), incoming});
      else
        writer.reduce(work(range), {incoming, own(range)});
    }
    const std::vector<Slice> ranges =
        halve(writer, fold, steps, range, fold.in_pair ? work : own, work, incoming, final_scale(spec.op));
    // The remaining ranks share the root's higher bits; of each pair, the one with the root's bit receives.
    for (std::size_t step = steps.size(); step-- > 0;) {
      const int peer = fold.actual(steps[step].peer);
      writer.round();
      if ((me ^ root) >> step & 1) {
        writer.send(peer, work(ranges[step + 1]));
        break;
      }
      writer.recv(peer, work(given_half(ranges[step], steps[step])));
    }
  }
}

}  // namespace mpi_gdr::collectives
