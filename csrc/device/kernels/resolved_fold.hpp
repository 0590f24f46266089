// A fold whose addresses come from a table at execution (device/resolved.hpp): the kernel's arguments, and
// what one thread of each block resolves for the others. Plain functions that the host compiles too.
#pragma once

#include "device/kernels/fold_elements.hpp"
#include "device/resolved.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

struct ResolvedFoldArgs {
  struct Source {
    const void* here;
    std::uint64_t offset;
    std::int64_t entry;  // of the table, -1: none
  };
  void* dst;
  std::uint64_t count;  // elements
  double factor;
  const std::uint64_t* table;
  std::uint64_t output_offset;
  std::uint32_t divisor;
  int source_count;
  int outputs;  // entries of the table from `first_output` on; 0: the result goes to dst alone
  int first_output;
  Source sources[kMostResolved];
};
static_assert(sizeof(ResolvedFoldArgs) <= 4096);

// In memory shared by the threads of a block.
struct ResolvedFold {
  std::uint64_t count, head, vectors;  // as of FoldArgs
  double factor;
  std::uint32_t divisor;
  int source_count, dst_count;
  const void* sources[kMostResolved];
  void* dsts[kMostResolved + 1];
};

template <typename Access, typename Stored>
MPI_GDR_PORTABLE void put(const ResolvedFold& args, std::uint64_t at, Access value) {
  for (int k = 0; k < args.dst_count; ++k)
    write(reinterpret_cast<Access*>(static_cast<Stored*>(args.dsts[k]) + at), value);
}

// On the host. `reduce`: maybe parts_of(). Throws InvalidUsage for too many sources, misaligned elements.
template <typename Codec>
ResolvedFoldArgs resolved_fold_args(const ReduceArgs& reduce, const ResolvedReduce& args) {
  if (reduce.source_count > kMostResolved || args.ranks > kMostResolved)
    fail(ErrorCode::InvalidUsage, "source_count=", reduce.source_count, ": at most ", kMostResolved,
         " sources are resolved by a device");
  ResolvedFoldArgs out;
  out.dst = reduce.dst;
  out.count = reduce.count;
  out.factor = reduce.factor;
  out.divisor = reduce.divisor;
  out.table = args.table;
  out.output_offset = args.output_offset;
  out.source_count = reduce.source_count;
  out.outputs = args.to_outputs ? args.ranks : 0;
  out.first_output = args.ranks;
  std::uintptr_t any = reinterpret_cast<std::uintptr_t>(reduce.dst) | args.output_offset;
  for (int k = 0; k < reduce.source_count; ++k) {
    out.sources[k] = {reduce.sources[k], args.resolved[k].offset, args.resolved[k].entry};
    any |= reinterpret_cast<std::uintptr_t>(reduce.sources[k]) | args.resolved[k].offset;
  }
  check_aligned<typename Codec::Stored>(any, reduce.dtype);
  return out;
}

// Upper bound of the number of threads with work.
template <typename Codec>
std::uint64_t useful_threads(const ResolvedFoldArgs& args) {
  return args.count * sizeof(typename Codec::Stored) / sizeof(Vector) + 2 * sizeof(Vector);
}

template <typename Codec>
MPI_GDR_PORTABLE void resolve_fold(const ResolvedFoldArgs& args, ResolvedFold& out) {
  using Stored = typename Codec::Stored;
  out.count = args.count;
  out.factor = args.factor;
  out.divisor = args.divisor;
  out.source_count = args.source_count;
  out.dst_count = 0;
  for (int r = 0; r < args.outputs; ++r)
    if (const std::uint64_t output = args.table[args.first_output + r])
      out.dsts[out.dst_count++] = reinterpret_cast<void*>(output + args.output_offset);
  if (args.outputs == 0 || out.dst_count < args.outputs) out.dsts[out.dst_count++] = args.dst;
  for (int k = 0; k < args.source_count; ++k) {
    const std::uint64_t base = args.sources[k].entry < 0 ? 0 : args.table[args.sources[k].entry];
    out.sources[k] =
        base ? reinterpret_cast<const void*>(base + args.sources[k].offset) : args.sources[k].here;
  }
  const auto dst = reinterpret_cast<std::uintptr_t>(out.dsts[0]);
  std::uintptr_t differences = 0;
  for (int k = 1; k < out.dst_count; ++k) differences |= reinterpret_cast<std::uintptr_t>(out.dsts[k]) ^ dst;
  for (int k = 0; k < out.source_count; ++k)
    differences |= reinterpret_cast<std::uintptr_t>(out.sources[k]) ^ dst;
  split<Stored>(out, dst, differences);
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
