// Compares a device's kernels, each called as a function that runs a whole grid, with host::reduce:
// distribution of elements over threads, vector loads, remainders at both ends, addresses from a table.
#pragma once

#include "device/kernels/reduce_families.hpp"
#include "device/resolved.hpp"
#include "device_elements.hpp"
#include "test.hpp"

namespace unit {

// Memory at a chosen distance from a multiple of 16, between guard bytes.
class Buffer {
 public:
  Buffer(std::size_t residue, std::size_t bytes) : bytes_(bytes), memory_(residue + bytes + 48, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + (16 - address % 16) % 16 + 16 + residue;
    end_ = memory_.data() + memory_.size();
  }
  void fill(const std::vector<unsigned char>& values) {
    if (!values.empty()) std::memcpy(begin_, values.data(), values.size());
  }
  unsigned char* data() { return begin_; }
  std::vector<unsigned char> values() const { return {begin_, begin_ + bytes_}; }
  bool guarded() const {
    const auto same = [](unsigned char b) { return b == kGuard; };
    return std::all_of(memory_.data(), static_cast<const unsigned char*>(begin_), same) &&
           std::all_of(static_cast<const unsigned char*>(begin_) + bytes_,
                       static_cast<const unsigned char*>(end_), same);
  }

 private:
  static constexpr unsigned char kGuard = 0xa5;
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
  unsigned char *begin_, *end_;
};

struct FoldShape {
  std::size_t count;
  int sources;
  std::size_t residue;  // of dst, in units of the element's alignment
  std::size_t shift;    // of the last source, in addition
  unsigned threads, most_blocks;
  bool in_place;  // dst is the last source
};

inline constexpr FoldShape kFoldShapes[] = {
    {0, 2, 0, 0, 4, 2, false},    {1, 1, 1, 0, 32, 4, false},  {7, 3, 3, 0, 2, 2, false},
    {64, 2, 0, 0, 4, 2, false},   {103, 1, 5, 0, 4, 3, true},  {103, 2, 5, 0, 4, 3, false},
    {103, 3, 1, 0, 32, 4, true},  {103, 9, 1, 0, 3, 5, false}, {103, 2, 0, 1, 4, 3, false},
    {103, 9, 15, 1, 4, 3, false}, {257, 3, 2, 0, 8, 2, false}, {257, 9, 0, 0, 256, 8, true},
};

// Args: ReduceArgs and those of a grid.
template <typename Args>
struct FoldCheck {
  using DataType = mpi_gdr::DataType;
  using ReduceOp = mpi_gdr::ReduceOp;
  using Bytes = std::vector<unsigned char>;

  const mpi_gdr::kernels::Families<Args>& families;
  bool (*same)(DataType, const Bytes&, const Bytes&);
  std::mt19937 random;

  void every_kernel() {
    for (int d = 0; d < mpi_gdr::kDataTypeCount; ++d)
      for (int o = 0; o < mpi_gdr::kReduceOpCount; ++o) {
        const auto dtype = static_cast<DataType>(d);
        const auto op = static_cast<ReduceOp>(o);
        if (!mpi_gdr::supports(op, dtype)) continue;
        for (const FoldShape& shape : kFoldShapes) {
          check(dtype, op, shape, op == ReduceOp::PreMulSum ? 0.3 : 1.0, 1);
          if (op == ReduceOp::Avg) check(dtype, op, shape, 1.0, 3);
        }
      }
  }

  void every_offset_and_length(std::size_t most) {
    for (const DataType dtype : {DataType::UInt8, DataType::BFloat16, DataType::Complex128})
      for (std::size_t count = 0; count <= most; ++count)
        for (std::size_t residue = 0; residue < 16 / alignment_of(dtype); ++residue)
          for (const std::size_t shift : {0, 1}) {
            check(dtype, ReduceOp::Sum, {count, 2, residue, shift, 3, 2, false}, 1.0, 1);
            check(dtype, ReduceOp::Sum, {count, 2, residue, shift, 64, 2, true}, 1.0, 1);
          }
  }

  void check(DataType dtype, ReduceOp op, const FoldShape& shape, double factor, std::uint32_t divisor) {
    const std::size_t alignment = alignment_of(dtype), bytes = shape.count * item_size(dtype);
    std::vector<Buffer> sources;
    for (int k = 0; k < shape.sources; ++k) {
      const bool last = k == shape.sources - 1;
      sources.emplace_back((shape.residue + (last ? shape.shift : 0)) * alignment % 16, bytes);
      sources.back().fill(random_elements(dtype, shape.count, random));
    }
    std::vector<const void*> addresses;
    for (Buffer& source : sources) addresses.push_back(source.data());
    Bytes expected(bytes + 1);
    Args args{{dtype, op, expected.data(), addresses.data(), shape.sources, shape.count, factor, divisor},
              shape.threads,
              shape.most_blocks};
    mpi_gdr::host::reduce(args);
    expected.pop_back();
    check_resolved(args, expected, shape, false);
    check_resolved(args, expected, shape, true);
    Buffer fresh(shape.residue * alignment % 16, bytes);
    Buffer& dst = shape.in_place ? sources.back() : fresh;
    args.dst = dst.data();
    mpi_gdr::kernels::reduce_with(families, args);
    CHECK(same(dtype, dst.values(), expected) && dst.guarded());
  }

  // The same reduction, where every second source and all outputs have table addresses, except the first
  // output without `all_outputs`.
  void check_resolved(Args args, const Bytes& expected, const FoldShape& shape, bool all_outputs) {
    const std::size_t alignment = alignment_of(args.dtype), bytes = expected.size();
    const int ranks = shape.sources;
    std::vector<Buffer> outputs;
    for (int r = 0; r < ranks; ++r)
      outputs.emplace_back((shape.residue + (r == 1 ? shape.shift : 0)) * alignment % 16, bytes);
    Buffer dst(shape.residue * alignment % 16, bytes);
    const Bytes blank(bytes, 0x77);
    dst.fill(blank);
    std::vector<std::uint64_t> table;
    std::vector<const void*> sources(args.sources, args.sources + args.source_count);
    std::vector<mpi_gdr::ResolvedSource> resolved(sources.size());
    for (int r = 0; r < ranks; ++r) {
      const auto at = static_cast<std::size_t>(r);
      table.push_back(r % 2 == 0 ? 0 : reinterpret_cast<std::uint64_t>(sources[at]) - 8);
      if (r % 4 != 3) resolved[at] = {r, 8};  // some sources with a table address do not use it
      if (r % 4 == 1) sources[at] = nullptr;
    }
    for (int r = 0; r < ranks; ++r)
      table.push_back(r == 0 && !all_outputs ? 0 : reinterpret_cast<std::uint64_t>(outputs[r].data()) - 24);
    Bytes last(bytes);
    if (bytes) std::memcpy(last.data(), args.sources[ranks - 1], bytes);
    outputs.back().fill(last);
    sources.back() = outputs.back().data();
    resolved.back() = {};
    args.dst = dst.data();
    args.sources = sources.data();
    const mpi_gdr::ResolvedReduce reduce{args, table.data(), ranks, resolved.data(), true, 24};
    args.resolved = &reduce;
    mpi_gdr::kernels::reduce_with(families, args);
    const auto holds = [&](Buffer& buffer, const Bytes& what) {
      return same(args.dtype, buffer.values(), what) && buffer.guarded();
    };
    CHECK(holds(dst, all_outputs ? blank : expected));
    for (int r = all_outputs ? 0 : 1; r < ranks; ++r) CHECK(holds(outputs[r], expected));
  }
};

}  // namespace unit
