// What the algorithms for ranks of one node share: they touch each other's memory instead of sending
// messages.
//
//   direct   each rank reads the others' Input and writes their Output: every byte moves once. What that
//            costs depends on how the executor reaches the memory (mapped, or by the kernel's copy)
//   staged   everything goes through Staging, in chunks: one copy more, no access to anybody's tensors
//   flag     as staged, but every rank does all of the reduction: one synchronisation instead of two
//
// Staging is used in two halves: a half is written again once all ranks have come one synchronisation
// further, so none of them waits for the slowest reader.
//
// Staged schedules for whoever can run them in place (Tuning::in_place) end with one synchronisation more:
// what others read is then not a rank's own memory for staging, but its caller's.
// Source: Graham, Shipman, "MPI support for multi-core architectures: optimized shared memory collectives",
// EuroPVM/MPI 2008; Chakraborty et al., "Contention-aware kernel-assisted MPI collectives", CLUSTER 2017.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collectives/build.hpp"

namespace mpigdr::collectives {

// All that any rank did in earlier rounds is known to all ranks in later ones.
inline void meet(ScheduleWriter& writer, const CollectiveSpec& spec) {
  writer.round();
  writer.notify();
  for (int k = 1; k < spec.size; ++k) writer.await(wrap(spec.rank + k, spec.size));
  writer.round();
}

// The same between the root and each of the others, in one direction or both.
enum class Way : std::uint8_t { FromRoot, ToRoot, Both };
inline void meet_root(ScheduleWriter& writer, const CollectiveSpec& spec, Way way) {
  const bool root = spec.rank == spec.root;
  const bool tells = way == Way::Both || root == (way == Way::FromRoot);
  const bool waits = way == Way::Both || root == (way == Way::ToRoot);
  writer.round();
  if (tells) writer.notify();
  if (waits && !root) writer.await(spec.root);
  if (waits && root)
    for (int k = 1; k < spec.size; ++k) writer.await(wrap(spec.rank + k, spec.size));
  writer.round();
}

// The same slice of rank r's memory.
inline Slice of(Slice slice, int r) {
  slice.owner = r;
  return slice;
}

inline std::vector<Slice> of_all(const Slice& slice, int size) {
  std::vector<Slice> all;
  for (int r = 0; r < size; ++r) all.push_back(of(slice, r));
  return all;
}

// Pieces of a slice that stay in a core's cache between two steps that touch them.
class Tiles {
 public:
  Tiles(const Slice& slice, const CollectiveSpec& spec, const Tuning& tuning) : slice_(slice) {
    const std::uint64_t target = std::max<std::uint64_t>(1, tuning.chunk_bytes / item_size(spec.dtype));
    number_ = std::clamp<std::uint64_t>(slice.count / target, 1, kMost);
  }
  std::uint64_t number() const { return number_; }
  Slice at(std::uint64_t i) const { return piece(slice_, number_, i); }

 private:
  static constexpr std::uint64_t kMost = 16384;  // bounds the size of the schedule
  Slice slice_;
  std::uint64_t number_;
};

// A copy between ranks, in tiles: an executor does other things between rounds.
inline void copy_in_tiles(ScheduleWriter& writer, const Slice& dst, const Slice& source,
                          const CollectiveSpec& spec, const Tuning& tuning) {
  const Tiles to(dst, spec, tuning), from(source, spec, tuning);
  for (std::uint64_t i = 0; i < to.number(); ++i) {
    writer.round();
    writer.copy(to.at(i), from.at(i));
  }
}

// The chunks in which `count` elements go through Staging, of which each takes `parts` times its size.
class StagedChunks {
 public:
  StagedChunks(ScheduleWriter& writer, std::uint64_t count, std::uint64_t parts, const CollectiveSpec& spec,
               const Tuning& tuning)
      : count_(count) {
    const std::uint64_t room = tuning.staging_bytes / item_size(spec.dtype) / (2 * parts);
    each_ = std::clamp<std::uint64_t>(room, 1, std::max<std::uint64_t>(count, 1));
    base_ = writer.staging(2 * parts * each_);
    half_ = parts * each_;
  }
  std::uint64_t number() const { return (count_ + each_ - 1) / each_; }
  std::uint64_t each() const { return each_; }
  // Chunk i of a slice of at most `count` elements.
  Slice chunk(const Slice& whole, std::uint64_t i) const {
    const std::uint64_t at = std::min(i * each_, whole.count);
    return {whole.buffer, whole.offset + at, std::min(each_, whole.count - at), whole.owner};
  }
  // Room for part `part` of chunk i; `count` elements of it.
  Slice room(std::uint64_t i, std::uint64_t part, std::uint64_t count) const {
    return {Buffer::Staging, base_.offset + (i % 2) * half_ + part * each_, count};
  }

 private:
  std::uint64_t count_, each_, half_;
  Slice base_;
};

inline bool takes_result(const CollectiveSpec& spec) {
  return !has_root(spec.collective) || spec.rank == spec.root;
}

// The reduction of all ranks' inputs by each rank that takes the result: the others' come through Staging,
// and everything is read by everybody. One fold over all ranks in rank order, rounded once.
inline void reduce_whole(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const bool takes = takes_result(spec), gives = !has_root(spec.collective) || !takes;
  const bool scaled = spec.op == ReduceOp::PreMulSum;  // in Staging, by its own rank
  const StagedChunks chunks(writer, spec.count, 1, spec, tuning);
  for (std::uint64_t i = 0; i < chunks.number(); ++i) {
    const Slice dst = chunks.chunk({Buffer::Output, 0, spec.count}, i);
    const Slice room = chunks.room(i, 0, dst.count);
    const Slice source = chunks.chunk({Buffer::Input, 0, spec.count}, i);
    writer.round();
    if (gives || scaled) writer.copy(room, source, first_scale(spec.op));
    meet(writer, spec);
    if (!takes) continue;
    std::vector<Slice> sources = of_all(room, spec.size);
    // Likelier in this core's cache.
    if (!scaled) sources[static_cast<std::size_t>(spec.rank)] = source;
    writer.reduce(dst, sources, final_scale(spec.op));
  }
}

// The reduction of all ranks' inputs through Staging, piece r of each chunk by rank r. What a rank reduces
// itself it takes from its Input: only the other pieces are copied in.
//
// A pipeline: while chunk i is copied in, chunk i - 1 is reduced and chunk i - 2 copied out, so that there is
// one synchronisation for each chunk. Of three chunks in work each touches another part of Staging.
class StagedReduction {
 public:
  StagedReduction(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning)
      : writer_(writer),
        spec_(spec),
        p_(static_cast<std::uint64_t>(spec.size)),
        rank_(static_cast<std::uint64_t>(spec.rank)),
        // A chunk's part r - 1 or r holds the piece for rank r, its last part what this rank has reduced.
        rooms_(writer, with_margin((spec.count + p_ - 1) / p_), p_, spec, tuning),
        each_(rooms_.each() < kLarge ? rooms_.each() : rooms_.each() - kMargin),
        in_place_(tuning.in_place) {}

  void write() {
    const bool takes = takes_result(spec_);
    const std::uint64_t chunks = (spec_.count + p_ * each_ - 1) / (p_ * each_);
    for (std::uint64_t i = 0; i < chunks + 2; ++i) {
      writer_.round();
      if (i < chunks) copy_in(i);
      if (i >= 1 && i <= chunks) reduce(i - 1);
      if (i >= 2 && takes) copy_out(i - 2);
      if (i <= chunks) meet(writer_, spec_);
    }
  }

 private:
  // By so much piece() makes some pieces longer than others, from this length on.
  static constexpr std::uint64_t kMargin = 64, kLarge = 4096;
  static constexpr std::uint64_t with_margin(std::uint64_t count) {
    return count < kLarge ? count : count + kMargin;
  }

  Slice chunk(Buffer buffer, std::uint64_t i) const {
    const std::uint64_t at = i * p_ * each_;
    return {buffer, at, std::min(p_ * each_, spec_.count - at)};
  }
  Slice piece_of(Buffer buffer, std::uint64_t i, std::uint64_t r) const {
    return piece(chunk(buffer, i), p_, r);
  }
  // Where rank `owner` keeps the piece for rank r; for itself: what it has reduced.
  Slice room(std::uint64_t i, std::uint64_t owner, std::uint64_t r) const {
    const std::uint64_t part = r == owner ? p_ - 1 : r < owner ? r : r - 1;
    const Slice here = rooms_.room(i, part, piece_of(Buffer::Input, i, r).count);
    return owner == rank_ ? here : of(here, static_cast<int>(owner));
  }
  // With the place of what it holds, unless that is a multiple of the input.
  Slice filled_room(std::uint64_t i, std::uint64_t owner, std::uint64_t r) {
    const Slice there = room(i, owner, r);
    if (!in_place_ || spec_.op == ReduceOp::PreMulSum) return there;
    return writer_.placed(there, piece_of(Buffer::Input, i, r));
  }
  // With the place where the result goes on every rank.
  Slice result_room(std::uint64_t i, std::uint64_t r) {
    const Slice there = room(i, r, r);
    if (!in_place_ || has_root(spec_.collective)) return there;
    return writer_.placed(there, piece_of(Buffer::Output, i, r));
  }
  void copy_in(std::uint64_t i) {
    for (std::uint64_t r = 0; r < p_; ++r)
      if (r != rank_)
        writer_.copy(filled_room(i, rank_, r), piece_of(Buffer::Input, i, r), first_scale(spec_.op));
  }
  void reduce(std::uint64_t i) {
    const Slice result = result_room(i, rank_);
    Slice own = piece_of(Buffer::Input, i, rank_);
    if (spec_.op == ReduceOp::PreMulSum) {  // by this rank's factor, before it meets the others
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
  const std::uint64_t each_;  // elements of a piece, but for kMargin
  const bool in_place_;
};

// Of two ranks, reducing everything is as much to read as to reduce one half and to copy the other one out,
// and less to write; not where the halves need not be copied.
inline void reduce_in_staging(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  if (spec.size == 2 && !tuning.in_place)
    reduce_whole(writer, spec, tuning);
  else
    StagedReduction(writer, spec, tuning).write();
}

}  // namespace mpigdr::collectives
