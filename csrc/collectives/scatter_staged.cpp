// Broadcast, scatter and gather inside a node through shared memory, in chunks that are copied in and out.
#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {
namespace {

// For each chunk of `own`, calls put(chunk, room) on the ranks that send and take(chunk, room) on those that
// receive; room(0) to room(parts - 1) are in Staging. A room is reused when its readers have signalled.
template <typename Put, typename Take>
void pass_chunks(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning, const Slice& own,
                 int parts, Way way, Put put, Take take) {
  const StagedChunks chunks(writer, own.count, static_cast<std::uint64_t>(parts), spec, tuning,
                            StagedChunks::Shape::Pipelined);
  const Way back = way == Way::FromRoot ? Way::ToRoot : Way::FromRoot;
  const bool puts = (spec.rank == spec.root) == (way == Way::FromRoot);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice chunk = chunks.chunk(own, i);
    const auto room = [&](int part) { return chunks.room(i, static_cast<std::uint64_t>(part), chunk.count); };
    if (puts) {
      if (i >= chunks.rooms()) barrier_with_root(writer, spec, back);
      put(chunk, room);
      barrier_with_root(writer, spec, way);
    } else {
      barrier_with_root(writer, spec, way);
      take(chunk, room);
      if (i + chunks.rooms() < chunks.number()) barrier_with_root(writer, spec, back);
    }
  }
}

Slice in_block(const CollectiveSpec& spec, Buffer buffer, int r, const Slice& chunk) {
  return {buffer, block_offset(spec, r) + chunk.offset, chunk.count};
}

}  // namespace

void broadcast_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  pass_chunks(
      writer, spec, tuning, {Buffer::Output, 0, spec.count}, 1, Way::FromRoot,
      [&](const Slice& chunk, const auto& room) { writer.copy(room(0), chunk); },
      [&](const Slice& chunk, const auto& room) { writer.copy(chunk, of(room(0), spec.root)); });
}

void scatter_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Slice own{Buffer::Output, 0, spec.count};
  pass_chunks(
      writer, spec, tuning, own, spec.size - 1, Way::FromRoot,
      [&](const Slice& chunk, const auto& room) {
        for (int k = 1; k < spec.size; ++k)
          writer.copy(room(k - 1), in_block(spec, Buffer::Input, wrap(spec.root + k, spec.size), chunk));
      },
      [&](const Slice& chunk, const auto& room) {
        writer.copy(chunk, of(room(wrap(spec.rank - spec.root - 1, spec.size)), spec.root));
      });
  if (spec.rank == spec.root) writer.copy(own, in_block(spec, Buffer::Input, spec.rank, own));
}

void gather_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Slice own{Buffer::Input, 0, spec.count};
  if (spec.rank == spec.root) writer.copy(in_block(spec, Buffer::Output, spec.rank, own), own);
  pass_chunks(
      writer, spec, tuning, own, 1, Way::ToRoot,
      [&](const Slice& chunk, const auto& room) { writer.copy(room(0), chunk); },
      [&](const Slice& chunk, const auto& room) {
        for (int k = 1; k < spec.size; ++k) {
          const int r = wrap(spec.rank + k, spec.size);
          writer.copy(in_block(spec, Buffer::Output, r, chunk), of(room(0), r));
        }
      });
}

}  // namespace mpi_gdr::collectives
