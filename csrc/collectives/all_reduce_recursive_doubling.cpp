// All-reduce by recursive doubling.
//   T = ceil(lg p) (alpha + n beta + n gamma); p not a power of two: + 2 alpha + 2 n beta + n gamma
//   steps floor(lg p) (+ 2), bytes sent per rank n floor(lg p) (+ n), reductions n floor(lg p) (+ n)
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 2005.
//
// Every Reduce names the lower block of ranks first. So all ranks evaluate one and the same expression, and
// end up with equal bits even where the operation depends on the order of its operands (rounding, NaN, the
// sign of zero).
#include <bit>

#include "collectives/build.hpp"

namespace mpigdr::collectives {

SchedulePtr all_reduce_recursive_doubling(const CollectiveSpec& spec, const Tuning& tuning) {
  validate(spec, tuning);
  if (spec.size == 1) return alone("recursive_doubling", spec);
  ScheduleWriter writer("recursive_doubling");
  writer.lane();
  const Slice output{Buffer::Output, 0, spec.count};
  Slice current{Buffer::Input, 0, spec.count};  // where this rank's partial result stands
  if (spec.op == ReduceOp::PreMulSum) {
    writer.round();
    writer.copy(output, current, Scale::PreMul);
    current = output;
  }

  // The first 2 * folded ranks work in pairs: the odd one hands its values to the even one and gets the
  // result.
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(spec.size)));
  const int folded = spec.size - power;
  const bool in_pair = spec.rank < 2 * folded;
  if (in_pair && spec.rank % 2 == 1) {
    writer.round();
    writer.send(spec.rank - 1, current);
    writer.round();
    writer.recv(spec.rank - 1, output);
    return writer.finish();
  }

  const Slice incoming = writer.scratch(spec.count);
  if (in_pair) {
    writer.round();
    writer.recv(spec.rank + 1, incoming);
    writer.round();
    writer.reduce(output, {current, incoming});
    current = output;
  }
  const int virtual_rank = in_pair ? spec.rank / 2 : spec.rank - folded;
  for (int distance = 1; distance < power; distance *= 2) {
    const int virtual_peer = virtual_rank ^ distance;
    const int peer = virtual_peer < folded ? 2 * virtual_peer : virtual_peer + folded;
    writer.round();
    writer.send(peer, current);
    writer.recv(peer, incoming);
    writer.round();
    const Scale scale = 2 * distance == power ? final_scale(spec.op) : Scale::None;
    if (virtual_rank < virtual_peer)
      writer.reduce(output, {current, incoming}, scale);
    else
      writer.reduce(output, {incoming, current}, scale);
    current = output;
  }
  if (in_pair) {
    writer.round();
    writer.send(spec.rank + 1, output);
  }
  return writer.finish();
}

}  // namespace mpigdr::collectives
