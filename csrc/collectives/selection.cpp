// The default choice of algorithm: one table, first matching row wins. The limits between algorithms of
// messages follow from the cost formulas with alpha = 2 us and beta = gamma = 0.1 ns/B (one node); those for
// shared memory were measured (docs/bench.md).
#include <algorithm>
#include <bit>
#include <limits>

#include "collectives/collectives.hpp"
#include "common/error.hpp"

namespace mpigdr {
namespace {

constexpr std::uint64_t kOpen = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t KiB = 1024;

enum class Sizes : std::uint8_t { Any, PowersOfTwo, Others };

struct Row {
  Collective collective;
  Sizes sizes;
  int below_size;             // group size < below_size (0: any)
  std::uint64_t below_bytes;  // count * item size < below_bytes (kOpen: any)
  const char* algorithm;
};

// What goes through Staging in chunks has a schedule as long as it is large, times the number of ranks. For
// two.
constexpr std::uint64_t kStagedLimit = 1024 * 1024 * KiB;

// Bytes are those of CollectiveSpec::count: the whole buffer, or one rank's block of all_gather,
// reduce_scatter, gather and scatter (the mean one, if they are uneven). all_to_all has no bytes that are
// equal on all ranks.
constexpr Row kTable[] = {
    // Recursive doubling moves the least messages, Rabenseifner lg p of them and 2n bytes, the ring 2n bytes
    // with its reductions hidden behind the transfer. Off powers of two the first two pay 2n + n more.
    {Collective::AllReduce, Sizes::Any, 4, 32 * KiB, "recursive_doubling"},
    {Collective::AllReduce, Sizes::Any, 4, kOpen, "ring"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 8, 24 * KiB, "recursive_doubling"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 8, 48 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::Any, 8, 24 * KiB, "recursive_doubling"},
    {Collective::AllReduce, Sizes::Any, 8, kOpen, "ring"},
    {Collective::AllReduce, Sizes::Any, 0, 16 * KiB, "recursive_doubling"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 16, 192 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 32, 512 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 64, 1024 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 128, 2048 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 512, 8192 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::PowersOfTwo, 0, 32768 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::Others, 16, 64 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::Others, 32, 128 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::Others, 64, 384 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::Others, 256, 1024 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::Others, 0, 8192 * KiB, "rabenseifner"},
    {Collective::AllReduce, Sizes::Any, 0, kOpen, "ring"},
    {Collective::Broadcast, Sizes::Any, 3, kOpen, "chain"},
    {Collective::Broadcast, Sizes::Any, 32, 256 * KiB, "binomial"},
    {Collective::Broadcast, Sizes::Any, 32, kOpen, "chain"},
    {Collective::Broadcast, Sizes::Any, 0, 4096 * KiB, "binomial"},
    {Collective::Broadcast, Sizes::Any, 0, kOpen, "chain"},
    // The root of the tree takes in ceil(lg p) n, of Rabenseifner's 2n at most.
    {Collective::Reduce, Sizes::Any, 5, kOpen, "binomial"},
    {Collective::Reduce, Sizes::Any, 8, 24 * KiB, "binomial"},
    {Collective::Reduce, Sizes::Any, 0, 16 * KiB, "binomial"},
    {Collective::Reduce, Sizes::Any, 0, kOpen, "rabenseifner"},
    // Bruck copies the whole result and saves up to lg p messages of half a microsecond.
    {Collective::AllGather, Sizes::Others, 8, 2 * KiB, "bruck"},
    {Collective::AllGather, Sizes::Others, 32, 512, "bruck"},
    {Collective::AllGather, Sizes::Others, 256, 128, "bruck"},
    {Collective::AllGather, Sizes::Others, 0, 32, "bruck"},
    {Collective::AllGather, Sizes::Any, 0, 16 * KiB, "recursive_doubling"},
    {Collective::AllGather, Sizes::Any, 0, kOpen, "ring"},
    {Collective::ReduceScatter, Sizes::Any, 0, 64 * KiB, "pairwise"},
    {Collective::ReduceScatter, Sizes::Any, 0, kOpen, "ring"},
    {Collective::AllToAll, Sizes::Any, 0, kOpen, "pairwise"},
    {Collective::Barrier, Sizes::Any, 0, kOpen, "dissemination"},
    // The messages of the linear ones overlap: they wait for the bytes of n, as the trees do, which move them
    // twice.
    {Collective::Gather, Sizes::Any, 8, kOpen, "linear"},
    {Collective::Gather, Sizes::Any, 0, 16 * KiB, "binomial"},
    {Collective::Gather, Sizes::Any, 0, kOpen, "linear"},
    {Collective::Scatter, Sizes::Any, 8, kOpen, "linear"},
    {Collective::Scatter, Sizes::Any, 0, 16 * KiB, "binomial"},
    {Collective::Scatter, Sizes::Any, 0, kOpen, "linear"},
};

// Tried first inside a node. Two ranks: whatever synchronises once. More: what goes through Staging is copied
// twice, which pays only while it is small; and who sends the messages of a tree waits for nobody.
constexpr Row kNodeTable[] = {
    {Collective::AllReduce, Sizes::Any, 3, 128 * KiB, "flag"},
    {Collective::AllReduce, Sizes::Any, 0, 32 * KiB, "flag"},
    {Collective::AllReduce, Sizes::Any, 0, kOpen, "direct"},
    {Collective::Broadcast, Sizes::Any, 3, kStagedLimit, "staged"},
    {Collective::Broadcast, Sizes::Any, 0, 256 * KiB, "staged"},
    {Collective::Broadcast, Sizes::Any, 0, kOpen, "direct"},
    {Collective::Reduce, Sizes::Any, 3, kStagedLimit, "staged"},
    {Collective::Reduce, Sizes::Any, 0, 16 * KiB, "binomial"},
    {Collective::Reduce, Sizes::Any, 0, kOpen, "direct"},
    {Collective::AllGather, Sizes::Any, 3, kStagedLimit, "staged"},
    {Collective::AllGather, Sizes::Any, 0, 1024 * KiB, "staged"},
    {Collective::AllGather, Sizes::Any, 0, kOpen, "direct"},
    {Collective::ReduceScatter, Sizes::Any, 3, kStagedLimit, "staged"},
    {Collective::ReduceScatter, Sizes::Any, 0, 64 * KiB, "staged"},
    {Collective::ReduceScatter, Sizes::Any, 0, kOpen, "ring"},
    {Collective::Barrier, Sizes::Any, 3, kOpen, "flag"},
};

const std::vector<Row>& rows_for(Reach reach) {
  static const std::vector<Row> far(std::begin(kTable), std::end(kTable));
  static const std::vector<Row> near = [] {
    std::vector<Row> rows(std::begin(kNodeTable), std::end(kNodeTable));
    rows.insert(rows.end(), far.begin(), far.end());
    return rows;
  }();
  return reach == Reach::None ? far : near;
}

bool fits(const Row& row, Collective collective, int size) {
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(size));
  return row.collective == collective && (row.below_size == 0 || size < row.below_size) &&
         (row.sizes == Sizes::Any || power_of_two == (row.sizes == Sizes::PowersOfTwo));
}

// The library may choose another order of reduction from one call to the next, so that its own reductions are
// a default only where the order cannot matter: integers, and there only where latency is all that counts.
bool prefers_native(const CollectiveSpec& spec, std::string_view choice) {
  return spec.collective == Collective::AllReduce && choice == "recursive_doubling" &&
         is_integral(spec.dtype) && spec.op != ReduceOp::Avg;
}

// Of uneven blocks the mean counts.
std::uint64_t selecting_bytes(const CollectiveSpec& spec) {
  if (spec.collective == Collective::AllToAll || spec.collective == Collective::Barrier) return 0;
  std::uint64_t count = spec.count;
  if (!spec.counts.empty()) {
    count = 0;
    for (const std::uint64_t block : spec.counts) count += block / spec.counts.size();
  }
  const std::uint64_t item = item_size(spec.dtype);
  return count > kOpen / item ? kOpen - 1 : count * item;
}

// Of one buffer or block.
std::uint64_t largest_bytes(const CollectiveSpec& spec) {
  if (spec.counts.empty()) return selecting_bytes(spec);
  const std::uint64_t most = *std::max_element(spec.counts.begin(), spec.counts.end());
  return most > kOpen / item_size(spec.dtype) ? kOpen : most * item_size(spec.dtype);
}

// In every step of a ring some rank sends the largest block. Where that is far larger than the mean, few
// steps of growing length are over sooner.
bool is_skewed(const CollectiveSpec& spec) {
  if (spec.collective != Collective::AllGather || spec.counts.empty()) return false;
  const std::uint64_t largest = *std::max_element(spec.counts.begin(), spec.counts.end());
  return largest / 2 > selecting_bytes(spec) / item_size(spec.dtype);
}

const Algorithm& named(Collective collective, std::string_view algorithm) {
  const Algorithm* found = find_algorithm(collective, algorithm);
  MPIGDR_CHECK(found != nullptr);
  return *found;
}

bool is_direct(const Algorithm& algorithm) { return algorithm.name == std::string_view("direct"); }

bool reaches(const Algorithm& algorithm, Reach reach) {
  return !algorithm.shared || reach == Reach::All || (reach == Reach::Segments && !is_direct(algorithm));
}

}  // namespace

bool usable(const Algorithm& algorithm, const CollectiveSpec& spec, Reach reach) {
  if (!reaches(algorithm, reach)) return false;
  if (!algorithm.shared || spec.size == 1) return true;
  // Nobody may read a product with a rank's own factor where it does not stand: it would go through Staging.
  const bool staged =
      !is_direct(algorithm) || (spec.op == ReduceOp::PreMulSum && spec.collective != Collective::AllReduce);
  return !staged || largest_bytes(spec) < kStagedLimit / static_cast<unsigned>(spec.size / 2);
}

const Algorithm& select_algorithm(const CollectiveSpec& spec, bool native_exact, Reach reach) {
  const std::uint64_t bytes = selecting_bytes(spec);
  for (const Row& row : rows_for(reach)) {
    if (!fits(row, spec.collective, spec.size) || (row.below_bytes != kOpen && bytes >= row.below_bytes) ||
        !usable(named(spec.collective, row.algorithm), spec, reach))
      continue;
    if (is_skewed(spec) && std::string_view(row.algorithm) == "ring")
      return named(spec.collective, "recursive_doubling");
    const bool native = native_exact && prefers_native(spec, row.algorithm);
    return named(spec.collective, native ? "native" : row.algorithm);
  }
  fail(ErrorCode::Internal, "no algorithm for ", name(spec.collective), " of ", spec.size, " ranks");
}

std::vector<SelectionRange> selection_table(int size, Reach reach) {
  std::vector<SelectionRange> ranges;
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    std::uint64_t from = 0;
    for (const Row& row : rows_for(reach)) {
      if (!fits(row, collective, size) || (row.below_bytes <= from && from > 0) ||
          !reaches(named(collective, row.algorithm), reach))
        continue;
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
