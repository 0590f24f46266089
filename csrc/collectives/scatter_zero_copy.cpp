// Broadcast, gather and scatter inside a node. In a broadcast the root writes 1/p of the data to each rank,
// which copies the rest from the root. In a gather or scatter the root copies the smaller part of each block,
// the block's rank the larger one.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {
namespace {

void copy_blocks(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning, bool to_root) {
  const Slice own{to_root ? Buffer::Input : Buffer::Output, 0, spec.count};
  const auto block = [&](int r) {
    return Slice{to_root ? Buffer::Output : Buffer::Input, block_offset(spec, r), spec.count};
  };
  const auto copy = [&](const Slice& part, const Slice& of_root) {
    copy_in_tiles(writer, to_root ? of_root : part, to_root ? part : of_root, spec, tuning);
  };
  barrier_with_root(writer, spec, Way::Both);
  if (spec.rank == spec.root) {
    if (to_root) copy(own, block(spec.rank));
    for (int k = 1; k < spec.size; ++k) {
      const int r = wrap(spec.rank + k, spec.size);
      copy(of(share_of_root(own, spec), r), share_of_root(block(r), spec));
    }
    if (!to_root) copy(own, block(spec.rank));
  } else {
    copy(share_of_other(own, spec), of(share_of_other(block(spec.rank), spec), spec.root));
  }
  barrier_with_root(writer, spec, Way::Both);
}

}  // namespace

void broadcast_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const auto p = static_cast<std::uint64_t>(spec.size);
  const Slice whole{Buffer::Output, 0, spec.count};
  const Slice pushed = piece(whole, p, 0);
  const Slice pulled{Buffer::Output, pushed.count, spec.count - pushed.count};
  barrier_with_root(writer, spec, Way::Both);
  if (spec.rank == spec.root) {
    copy_to_all(writer, pushed, pushed, spec, tuning);
  } else {
    copy_in_tiles(writer, pulled, of(pulled, spec.root), spec, tuning);
  }
  barrier_with_root(writer, spec, Way::Both);
}

void gather_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  copy_blocks(writer, spec, tuning, true);
}

void scatter_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  copy_blocks(writer, spec, tuning, false);
}

}  // namespace mpi_gdr::collectives
