#include <algorithm>
#include <bit>

#include "collectives/selection_table.hpp"
#include "common/error.hpp"

namespace mpi_gdr {
namespace {

using Row = SelectionRow;

// Bytes, for two ranks: a schedule through Staging grows with the buffer times the number of ranks.
constexpr std::uint64_t kStagedLimit = std::uint64_t{1} << 30;

struct Traits {
  Collective collective;
  int size;
  DataType dtype;
  ReduceOp op;
  std::uint64_t bytes;    // compared with SelectionRow::from_bytes
  std::uint64_t largest;  // bytes of one buffer or block
  bool uneven;            // the largest block has more than twice the mean
  bool native_exact;
  Reach reach;
  bool two_level;  // some ranks share a node, others do not
  Bits bits;       // what the call promises
  bool chain;      // partial folds may go from node to node
};

std::uint64_t in_bytes(std::uint64_t count, DataType dtype) {
  const std::uint64_t item = item_size(dtype);
  return count > kUnlimited / item ? kUnlimited - 1 : count * item;
}

Bits kept_bits(const SelectionTable& table, Collective collective, DataType dtype) {
  return reduces(collective) && !is_integral(dtype) ? table.bits() : Bits::Any;
}

Traits traits_of(const CollectiveSpec& spec, bool native_exact, Reach reach, Bits bits) {
  const bool two_level = spec.topology && spec.topology->two_level();
  const bool chain = two_level && spec.topology->consecutive() && keeps_sums(spec.dtype);
  // The reach inside a node may differ between nodes, and all ranks must choose alike.
  if (reach >= Reach::Nodes) reach = Reach::None;
  Traits t{spec.collective, spec.size,    spec.dtype, spec.op,   0,    0,
           false,           native_exact, reach,      two_level, bits, chain};
  if (!has_count(spec.collective)) return t;
  const std::uint64_t mean = mean_count(spec);
  std::uint64_t most = spec.count;
  if (!spec.counts.empty()) {
    most = *std::max_element(spec.counts.begin(), spec.counts.end());
    t.uneven = most / 2 > mean;
  }
  t.bytes = in_bytes(mean, spec.dtype);
  t.largest = in_bytes(most, spec.dtype);
  return t;
}

bool fits(const Row& row, const Traits& t) {
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(t.size));
  return row.least_ranks <= t.size && t.size <= row.most_ranks &&
         (row.sizes == Row::Sizes::Any || power_of_two == (row.sizes == Row::Sizes::PowersOfTwo)) &&
         (row.dtypes >> static_cast<int>(t.dtype) & 1) && row.from_bytes <= t.bytes &&
         t.bytes < row.to_bytes &&
         (row.where == Row::Where::Anywhere || (row.where == Row::Where::Node) == (t.reach != Reach::None)) &&
         !(row.even_blocks && t.uneven);
}

// The largest buffer or block, in bytes, that goes through Staging. A device's chunks are 64 times as large.
std::uint64_t staged_limit(int size, Reach reach) {
  return kStagedLimit / static_cast<unsigned>(size / 2) * (reach >= Reach::Devices ? 64 : 1);
}

bool can_run(const Algorithm& algorithm, const Traits& t) {
  if (!algorithm.serves(t.bits)) return false;
  if (algorithm.native()) return t.native_exact;
  if (algorithm.two_level) return t.two_level && (t.chain || t.bits == Bits::Any);
  if (!algorithm.shared) return true;
  const bool zero_copy = algorithm.name == std::string_view("zero_copy");
  if (t.reach == Reach::None || (zero_copy && t.reach != Reach::All)) return false;
  if (t.size == 1) return true;
  const bool staged = !zero_copy || only_through_staging(t.collective, t.op);
  return !staged || t.largest < staged_limit(t.size, t.reach);
}

const Row& choose(const SelectionTable& table, const Traits& t) {
  for (const Row& row : table.rows(t.collective))
    if (fits(row, t) && can_run(*row.algorithm, t)) return row;
  fail(ErrorCode::Internal, "no algorithm for ", name(t.collective), " of ", t.size, " ranks");
}

}  // namespace

const SelectionRow& select_row(const CollectiveSpec& spec, bool native_exact, Reach reach,
                               const SelectionTable& table) {
  return choose(table, traits_of(spec, native_exact, reach, kept_bits(table, spec.collective, spec.dtype)));
}

std::vector<SelectionRange> selection_ranges(int size, Reach reach, const SelectionTable& table,
                                             DataType dtype, bool two_level) {
  std::vector<SelectionRange> ranges;
  for (const Collective collective : every<Collective>()) {
    std::vector<std::uint64_t> limits = {0, kUnlimited};
    if (size > 1) limits.push_back(staged_limit(size, reach));
    for (const Row& row : table.rows(collective)) limits.insert(limits.end(), {row.from_bytes, row.to_bytes});
    std::sort(limits.begin(), limits.end());
    limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
    for (std::size_t i = 0; i + 1 < limits.size(); ++i) {
      const std::uint64_t bytes = has_count(collective) ? limits[i] : 0;
      const Row& row =
          choose(table, {collective, size, reduces(collective) ? dtype : DataType::UInt8, ReduceOp::Sum,
                         bytes, bytes, false, true, reach, two_level && size > 2,
                         kept_bits(table, collective, dtype), two_level && size > 2 && keeps_sums(dtype)});
      const bool more = i > 0 && ranges.back().algorithm == row.algorithm->name &&
                        ranges.back().leaders == row.leaders && ranges.back().origin == row.origin;
      if (more)
        ranges.back().to_bytes = limits[i + 1];
      else
        ranges.push_back(
            {collective, limits[i], limits[i + 1], row.algorithm->name, row.leaders, row.origin});
    }
  }
  return ranges;
}

}  // namespace mpi_gdr
