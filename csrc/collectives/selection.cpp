// The default choice of algorithm: one table, first matching row wins. The limits follow from the cost
// formulas with alpha = 2 us and beta = gamma = 0.1 ns/B (one node); measured tables replace them row by row.
#include <limits>

#include "collectives/collectives.hpp"
#include "common/error.hpp"

namespace mpigdr {
namespace {

constexpr std::uint64_t kOpen = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t KiB = 1024;

struct Row {
  Collective collective;
  int below_size;             // group size < below_size (0: any)
  std::uint64_t below_bytes;  // count * item size < below_bytes (kOpen: any)
  const char* algorithm;
};

// Bytes are those of CollectiveSpec::count: the whole buffer, or one rank's block of all_gather,
// reduce_scatter, gather and scatter. all_to_all has no bytes that are equal on all ranks.
constexpr Row kTable[] = {
    {Collective::AllReduce, 8, 32 * KiB, "recursive_doubling"},
    {Collective::AllReduce, 8, kOpen, "ring"},
    {Collective::AllReduce, 32, 96 * KiB, "recursive_doubling"},
    {Collective::AllReduce, 32, kOpen, "ring"},
    {Collective::AllReduce, 256, 256 * KiB, "recursive_doubling"},
    {Collective::AllReduce, 256, kOpen, "ring"},
    {Collective::AllReduce, 0, 1024 * KiB, "recursive_doubling"},
    {Collective::AllReduce, 0, kOpen, "ring"},
    {Collective::Broadcast, 3, kOpen, "chain"},
    {Collective::Broadcast, 32, 256 * KiB, "binomial"},
    {Collective::Broadcast, 32, kOpen, "chain"},
    {Collective::Broadcast, 0, 4096 * KiB, "binomial"},
    {Collective::Broadcast, 0, kOpen, "chain"},
    {Collective::Reduce, 0, kOpen, "binomial"},
    {Collective::AllGather, 0, 16 * KiB, "recursive_doubling"},
    {Collective::AllGather, 0, kOpen, "ring"},
    {Collective::ReduceScatter, 0, 64 * KiB, "pairwise"},
    {Collective::ReduceScatter, 0, kOpen, "ring"},
    {Collective::AllToAll, 0, kOpen, "pairwise"},
    {Collective::Barrier, 0, kOpen, "dissemination"},
    {Collective::Gather, 0, kOpen, "linear"},
    {Collective::Scatter, 0, kOpen, "linear"},
};

bool fits(const Row& row, Collective collective, int size) {
  return row.collective == collective && (row.below_size == 0 || size < row.below_size);
}

// The library may choose another order of reduction from one call to the next, so that its own reductions are
// a default only where the order cannot matter: integers, and there only where latency is all that counts.
bool prefers_native(const CollectiveSpec& spec, std::string_view choice) {
  const bool any_order = spec.op == ReduceOp::Sum || spec.op == ReduceOp::Min || spec.op == ReduceOp::Max;
  return spec.collective == Collective::AllReduce && choice == "recursive_doubling" && any_order &&
         !is_floating(spec.dtype);
}

// Of uneven blocks the mean counts.
std::uint64_t selecting_bytes(const CollectiveSpec& spec) {
  if (spec.collective == Collective::AllToAll) return 0;
  std::uint64_t count = spec.count;
  if (!spec.counts.empty()) {
    count = 0;
    for (const std::uint64_t block : spec.counts) count += block / spec.counts.size();
  }
  const std::uint64_t item = item_size(spec.dtype);
  return count > kOpen / item ? kOpen - 1 : count * item;
}

const Algorithm& named(Collective collective, std::string_view algorithm) {
  const Algorithm* found = find_algorithm(collective, algorithm);
  MPIGDR_CHECK(found != nullptr);
  return *found;
}

}  // namespace

const Algorithm& select_algorithm(const CollectiveSpec& spec, bool native_exact) {
  const std::uint64_t bytes = selecting_bytes(spec);
  for (const Row& row : kTable) {
    if (!fits(row, spec.collective, spec.size) || (row.below_bytes != kOpen && bytes >= row.below_bytes))
      continue;
    const bool native = native_exact && prefers_native(spec, row.algorithm);
    return named(spec.collective, native ? "native" : row.algorithm);
  }
  fail(ErrorCode::Internal, "no algorithm for ", name(spec.collective), " of ", spec.size, " ranks");
}

std::vector<SelectionRange> selection_table(int size) {
  std::vector<SelectionRange> ranges;
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    std::uint64_t from = 0;
    for (const Row& row : kTable) {
      if (!fits(row, collective, size) || (row.below_bytes <= from && from > 0)) continue;
      if (!ranges.empty() && ranges.back().collective == collective &&
          ranges.back().algorithm == row.algorithm)
        ranges.back().to_bytes = row.below_bytes;
      else
        ranges.push_back({collective, from, row.below_bytes, row.algorithm});
      from = row.below_bytes;
      if (from == kOpen) break;
    }
  }
  return ranges;
}

}  // namespace mpigdr
