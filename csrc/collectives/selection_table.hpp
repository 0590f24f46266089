// The selection table: rows of text that choose the algorithm of a call. docs/tuning.md describes the format:
//   # collective    conditions                     bytes     algorithm
//   all_reduce      reach=node ranks=3-inf         0-32K     flag
// No I/O; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collectives.hpp"
#include "common/reach.hpp"

namespace mpi_gdr {

inline constexpr const char* kBuiltIn = "built-in";  // SelectionRow::origin
inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint32_t kEveryDataType = (std::uint32_t{1} << kDataTypeCount) - 1;

// A row fits a call that meets all its conditions; it is skipped if its algorithm cannot run the call.
struct SelectionRow {
  enum class Sizes : std::uint8_t { Any, PowersOfTwo, Others };
  enum class Where : std::uint8_t { Anywhere, Node, Messages };  // Node: the ranks share memory

  Collective collective = Collective::Barrier;
  int least_ranks = 1, most_ranks = std::numeric_limits<int>::max();  // inclusive
  Sizes sizes = Sizes::Any;
  std::uint32_t dtypes = kEveryDataType;  // bit i: DataType i; reductions only
  Where where = Where::Anywhere;
  bool even_blocks = false;  // only if no block is longer than twice the mean
  // The user accepts any order in which the library reduces floats (`order=library`).
  bool native_order = false;
  // [from, to) of the bytes that choose: of the whole buffer, or of one rank's (mean) block of all_gather,
  // reduce_scatter, gather and scatter; 0 for all_to_all, which has none that are equal on all ranks.
  std::uint64_t from_bytes = 0, to_bytes = kUnlimited;
  const Algorithm* algorithm = nullptr;
  int leaders = 0;     // Tuning::leaders, for a two-level all-reduce; 0: not set
  std::string origin;  // "built-in", or where a user wrote it: "tuning.txt:12", "MPI_GDR_SELECT"
};

class SelectionTable {
 public:
  void append(std::vector<SelectionRow> rows);
  // Rows whose algorithm does not serve `bits` are skipped in reductions that round.
  void keep(Bits bits) { bits_ = bits; }
  Bits bits() const { return bits_; }
  const std::vector<SelectionRow>& rows(Collective collective) const {
    return rows_[static_cast<std::size_t>(collective)];
  }

 private:
  std::array<std::vector<SelectionRow>, kCollectiveCount> rows_;
  Bits bits_ = Bits::Any;
};

// One row per line, `#` starts a comment. Throws InvalidUsage with `source`:line and what was expected.
std::vector<SelectionRow> parse_table(std::string_view text, const std::string& source);
// Rows separated by `#`, fields by `:`: "all_reduce:0-4K:flag#barrier:native". Throws as parse_table().
std::vector<SelectionRow> parse_overrides(std::string_view text, const std::string& source);
// A line that parse_table() turns into the same row, without its origin.
std::string to_text(const SelectionRow& row);

// csrc/collectives/default_table.txt, compiled in.
std::string_view default_table_text();
const SelectionTable& default_table();

// For messages: "recursive_doubling, ring, ..."; those that serve `bits`.
std::string algorithm_names(Collective collective, Bits bits = Bits::Any);
// The row fits reductions of a dtype that rounds.
bool may_round(const SelectionRow& row);

// The first row that fits and whose algorithm can run the call: with this reach, by a bounded schedule,
// "native" only if `native_exact` (exactly our semantics). Chooses by values that are equal on all ranks.
const SelectionRow& select_row(const CollectiveSpec& spec, bool native_exact, Reach reach = Reach::None,
                               const SelectionTable& table = default_table());

// The choices for groups of `size` ranks, of `dtype` (sum, even blocks), if MPI's own collectives can run all
// calls. `two_level`: the ranks are on several nodes, and some share one.
struct SelectionRange {
  Collective collective;
  std::uint64_t from_bytes, to_bytes;  // [from, to); to = kUnlimited: open
  std::string algorithm;
  int leaders;         // SelectionRow::leaders
  std::string origin;  // of the row
};
std::vector<SelectionRange> selection_ranges(int size, Reach reach = Reach::None,
                                             const SelectionTable& table = default_table(),
                                             DataType dtype = DataType::Float32, bool two_level = false);

}  // namespace mpi_gdr
