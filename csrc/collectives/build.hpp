// Cuts buffers into blocks, lanes and chunks for the builders; a rank's contribution to a reduction. Pure
// functions, thread-safe. Costs of the algorithms: algorithms.inc. Papers that several builders name:
//   Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
//     message-passing systems", IEEE TPDS 1997
//   Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004
//   Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 2005
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr::collectives {

// a modulo size, for a that may be negative.
constexpr int wrap(int a, int size) { return ((a % size) + size) % size; }

// The scale of the Copy of an input to where it is reduced.
constexpr Scale first_scale(ReduceOp op) { return op == ReduceOp::PreMulSum ? Scale::PreMul : Scale::None; }

// The scale of the Reduce that completes an element.
constexpr Scale final_scale(ReduceOp op) { return op == ReduceOp::Avg ? Scale::Average : Scale::None; }

// Piece k of a slice cut into `parts` nearly equal pieces. Large ones start at multiples of 64 elements, so
// that vector loads do not straddle cache lines. No piece is empty if parts <= slice.count.
inline Slice piece(const Slice& slice, std::uint64_t parts, std::uint64_t k) {
  const std::uint64_t each = slice.count / parts, extra = slice.count % parts;
  const std::uint64_t grain = each >= 4096 ? 64 : 1;
  const auto cut = [&](std::uint64_t i) {
    if (i == parts) return slice.count;
    const std::uint64_t even = each * i + std::min(i, extra);
    return even - even % grain;
  };
  return {slice.buffer, slice.offset + cut(k), cut(k + 1) - cut(k), slice.owner};
}

// An upper bound of the count of any piece(), to size scratch.
constexpr std::uint64_t largest_piece(std::uint64_t count, std::uint64_t parts) {
  const std::uint64_t each = count / parts;
  return std::min(count, each + (each >= 4096 ? 64 : 1));
}

// A block of one step is cut into lanes that run side by side, and each lane into consecutive chunks of about
// Tuning::chunk_bytes. Both numbers follow from values that are equal on all ranks. With more than one lane
// or chunk no piece is empty, so that all lanes have the same shape.
struct Pipeline {
  int lanes = 1;
  std::uint64_t chunks = 1;

  // `block`: elements of the smallest block to cut.
  Pipeline(std::uint64_t block, const CollectiveSpec& spec, const Tuning& tuning);
  Slice lane_slice(const Slice& block, int lane) const {
    return piece(block, static_cast<std::uint64_t>(lanes), static_cast<std::uint64_t>(lane));
  }
  Slice chunk(const Slice& block, int lane, std::uint64_t i) const {
    return piece(lane_slice(block, lane), chunks, i);
  }
  std::uint64_t largest_chunk(std::uint64_t block) const {
    return largest_piece(largest_piece(block, static_cast<std::uint64_t>(lanes)), chunks);
  }
};

// A ring of scratch slots of `count` elements each: use k has slot k modulo `slots`.
class Slots {
 public:
  Slots(ScheduleWriter& writer, std::uint64_t slots, std::uint64_t count)
      : base_(writer.scratch(slots * count)), slots_(slots), count_(count) {}
  Slice at(std::uint64_t k, std::uint64_t count) const {
    return {Buffer::Scratch, base_.offset + (k % slots_) * count_, count};
  }

 private:
  Slice base_;
  std::uint64_t slots_, count_;
};

// The blocks of a buffer with one for each rank, even or not.
class Blocks {
 public:
  explicit Blocks(const CollectiveSpec& spec);
  // The piece()s of `count` elements.
  Blocks(std::uint64_t count, int parts);
  Slice run(Buffer buffer, int first, int number) const {
    const std::uint64_t begin = offsets_[static_cast<std::size_t>(first)];
    return {buffer, begin, offsets_[static_cast<std::size_t>(first + number)] - begin};
  }
  Slice at(Buffer buffer, int rank) const { return run(buffer, rank, 1); }
  std::uint64_t count(int rank) const { return at(Buffer::Output, rank).count; }
  std::uint64_t total() const { return offsets_.back(); }
  // Elements of the smallest block that is not empty, and of the largest; 0: all are empty.
  std::uint64_t smallest() const { return smallest_; }
  std::uint64_t largest() const { return largest_; }
  // True if some blocks are empty, but not all: a rank may then send without receiving.
  bool some_empty() const { return any_empty_ && largest_ > 0; }

 private:
  void add(std::uint64_t count);
  std::vector<std::uint64_t> offsets_{0};  // size + 1
  std::uint64_t smallest_ = 0, largest_ = 0;
  bool any_empty_ = false;
};

// Appends a nonempty slice, merged with the last one where the two are contiguous.
void append(std::vector<Slice>& slices, const Slice& next);

// Blocks of an all_to_all that this rank sends and receives, by the other rank.
struct Exchange {
  explicit Exchange(const CollectiveSpec& spec);
  std::vector<Slice> sent, received;
};

// In all_to_all_pairwise.cpp. Sender and receiver must give a block the same length.
void exchange_pairwise(ScheduleWriter& writer, const CollectiveSpec& spec, const Exchange& blocks,
                       const Tuning& tuning);

// This rank's contribution to a reduction: its Input, or for PREMUL_SUM the product with the factor, in the
// Output of an all-reduce and in Scratch for other collectives, whose Output is too short or missing.
class Contribution {
 public:
  Contribution(ScheduleWriter& writer, const CollectiveSpec& spec)
      : writer_(writer), scaled_(spec.op == ReduceOp::PreMulSum) {
    if (!scaled_ || spec.collective == Collective::AllReduce) return;
    product_ = writer.scratch(input_count(spec));
  }
  Slice at(Slice input) const {
    if (scaled_) input = {product_.buffer, product_.offset + input.offset, input.count};
    return input;
  }
  // Multiplies part(0) to part(number - 1) of the Input, in a round before any use.
  template <typename Number, typename Part>
  void scale(Number number, Part part) const {
    if (!scaled_) return;
    writer_.round();
    for (Number k = 0; k < number; ++k) writer_.copy(at(part(k)), part(k), Scale::PreMul);
  }
  void scale(const Slice& input) const {
    scale(1, [&](int) { return input; });
  }

 private:
  ScheduleWriter& writer_;
  const bool scaled_;
  Slice product_{Buffer::Output, 0, 0};
};

}  // namespace mpi_gdr::collectives
