// Helpers of the algorithms whose ranks access each other's memory instead of sending messages.
//   zero_copy   each rank reads the others' Input and writes their Output, mapped or by the kernel's copy:
//               every byte moves once
//   staged      everything goes through Staging, in chunks: one more copy, no access to other ranks' tensors
//   flag        as staged, but every rank does all of the reduction: one synchronisation instead of two
//
// Chunks take turns in the rooms of Staging: a rank writes a chunk while others still read the one before.
// Staged schedules that may run in place (Tuning::in_place) must end with a synchronisation: other
// ranks may access the caller's buffers until then.
// Source: Graham, Shipman, "MPI support for multi-core architectures: optimized shared memory collectives",
// EuroPVM/MPI 2008; Chakraborty et al., "Contention-aware kernel-assisted MPI collectives", CLUSTER 2017.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

// Effects of earlier rounds on any rank are visible to all ranks in later rounds.
inline void barrier(ScheduleWriter& writer, const CollectiveSpec& spec) {
  writer.round();
  writer.signal();
  for (int k = 1; k < spec.size; ++k) writer.wait(wrap(spec.rank + k, spec.size));
  writer.round();
}

// barrier() between the root and each of the others, in one direction or both.
enum class Way : std::uint8_t { FromRoot, ToRoot, Both };
inline void barrier_with_root(ScheduleWriter& writer, const CollectiveSpec& spec, Way way) {
  const bool root = spec.rank == spec.root;
  const bool signals = way == Way::Both || root == (way == Way::FromRoot);
  const bool waits = way == Way::Both || root == (way == Way::ToRoot);
  writer.round();
  if (signals) writer.signal();
  if (waits && !root) writer.wait(spec.root);
  if (waits && root)
    for (int k = 1; k < spec.size; ++k) writer.wait(wrap(spec.rank + k, spec.size));
  writer.round();
}

inline Slice of(Slice slice, int r) {
  slice.owner = r;
  return slice;
}

inline std::vector<Slice> of_all(const Slice& slice, int size) {
  std::vector<Slice> all;
  for (int r = 0; r < size; ++r) all.push_back(of(slice, r));
  return all;
}

// Splits a slice into pieces of `chunks` chunks. One chunk stays in a core's cache from step to step.
class Tiles {
 public:
  Tiles(const Slice& slice, const CollectiveSpec& spec, const Tuning& tuning, std::uint64_t chunks = 1)
      : slice_(slice) {
    const std::uint64_t target =
        std::max<std::uint64_t>(1, chunks * tuning.chunk_bytes / item_size(spec.dtype));
    number_ = std::clamp<std::uint64_t>(slice.count / target, 1, kMost);
  }
  std::uint64_t number() const { return number_; }
  Slice at(std::uint64_t i) const { return piece(slice_, number_, i); }

 private:
  static constexpr std::uint64_t kMost = 16384;  // bounds the schedule
  Slice slice_;
  std::uint64_t number_;
};

// A copy between ranks, in tiles larger than a cache: each is a system call if the memory is not mapped.
inline void copy_in_tiles(ScheduleWriter& writer, const Slice& dst, const Slice& source,
                          const CollectiveSpec& spec, const Tuning& tuning) {
  const Tiles to(dst, spec, tuning, 16), from(source, spec, tuning, 16);
  for (std::uint64_t i = 0; i < to.number(); ++i) {
    writer.round();
    writer.copy(to.at(i), from.at(i));
  }
}

// Copies to `dst` of each other rank. A tile that is copied to several ranks stays in the cache.
inline void copy_to_all(ScheduleWriter& writer, const Slice& dst, const Slice& source,
                        const CollectiveSpec& spec, const Tuning& tuning) {
  const std::uint64_t chunks = spec.size == 2 ? 16 : 4;
  const Tiles to(dst, spec, tuning, chunks), from(source, spec, tuning, chunks);
  for (std::uint64_t i = 0; i < to.number(); ++i)
    for (int k = 1; k < spec.size; ++k) {
      writer.round();
      writer.copy(of(to.at(i), wrap(spec.rank + k, spec.size)), from.at(i));
    }
}

// In gather and scatter the root copies 1 / (size + 1) of a block, and the block's rank copies the rest.
inline Slice share_of_root(const Slice& block, const CollectiveSpec& spec) {
  return piece(block, static_cast<std::uint64_t>(spec.size) + 1, 0);
}
inline Slice share_of_other(const Slice& block, const CollectiveSpec& spec) {
  const std::uint64_t taken = share_of_root(block, spec).count;
  return {block.buffer, block.offset + taken, block.count - taken, block.owner};
}

// Splits `count` elements into chunks, each with room for `parts` times its size in Staging.
class StagedChunks {
 public:
  // Some ranks copy in, others out: short chunks, so that both copy at once, and as many rooms as fit.
  enum class Shape : std::uint8_t { LongInTwoRooms, Pipelined };
  StagedChunks(ScheduleWriter& writer, std::uint64_t count, std::uint64_t parts, const CollectiveSpec& spec,
               const Tuning& tuning, Shape shape = Shape::LongInTwoRooms)
      : count_(count), parts_(parts) {
    const std::uint64_t item = item_size(spec.dtype), all = tuning.staging_bytes / item / parts;
    each_ = std::clamp<std::uint64_t>(all / 2, 1, std::max<std::uint64_t>(count, 1));
    if (shape == Shape::Pipelined) {
      const std::uint64_t piece = std::max(count / kPieces, tuning.min_chunk_bytes / item);
      each_ = std::clamp<std::uint64_t>((piece + kAlignment - 1) / kAlignment * kAlignment, 1, each_);
      rooms_ = std::clamp<std::uint64_t>(all / each_, 2, std::max<std::uint64_t>(number(), 2));
    }
    base_ = writer.staging(rooms_ * parts * each_);
  }
  std::uint64_t number() const { return (count_ + each_ - 1) / each_; }
  std::uint64_t each() const { return each_; }
  // Chunk i has the room of chunk i - rooms().
  std::uint64_t rooms() const { return rooms_; }
  // Chunk i of a slice of at most `count` elements.
  Slice chunk(const Slice& whole, std::uint64_t i) const {
    const std::uint64_t at = std::min(i * each_, whole.count);
    return {whole.buffer, whole.offset + at, std::min(each_, whole.count - at), whole.owner};
  }
  // The first `count` elements of part `part` (from 0) of the room for chunk i.
  Slice room(std::uint64_t i, std::uint64_t part, std::uint64_t count) const {
    return {Buffer::Staging, base_.offset + (i % rooms_ * parts_ + part) * each_, count};
  }

 private:
  static constexpr std::uint64_t kPieces = 8, kAlignment = 64;  // elements: whole cache lines
  std::uint64_t count_, parts_, each_, rooms_ = 2;
  Slice base_;
};

}  // namespace mpi_gdr::collectives
