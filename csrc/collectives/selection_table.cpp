#include "collectives/selection_table.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "common/bytes_text.hpp"
#include "common/error.hpp"

namespace mpi_gdr {
namespace {

using Row = SelectionRow;

constexpr std::uint32_t bit(DataType t) { return std::uint32_t{1} << static_cast<int>(t); }

template <typename Predicate>
constexpr std::uint32_t types_where(Predicate wanted) {
  std::uint32_t mask = 0;
  for (const DataType t : every<DataType>())
    if (wanted(t)) mask |= bit(t);
  return mask;
}

constexpr std::uint32_t kIntegers = types_where([](DataType t) { return is_integral(t); });

// Names of sets of types. "float": all types that round.
struct TypeClass {
  std::string_view name;
  std::uint32_t types;
};
constexpr TypeClass kTypeClasses[] = {
    {"integer", kIntegers},
    {"float", kEveryDataType & ~kIntegers},
    {"half", bit(DataType::Float16) | bit(DataType::BFloat16)},
    {"float8", types_where([](DataType t) { return !is_integral(t) && item_size(t) == 1; })},
};

// Other names of the collectives, in lower case without underscores.
constexpr std::pair<std::string_view, Collective> kAliases[] = {
    {"bcast", Collective::Broadcast},
    {"allgathersingle", Collective::AllGather},
    {"allgatherintotensor", Collective::AllGather},  // before torch 2.13
    {"reducescattersingle", Collective::ReduceScatter},
    {"reducescattertensor", Collective::ReduceScatter},
    {"reducescatterblock", Collective::ReduceScatter},
    {"alltoallsingle", Collective::AllToAll},
};

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators, bool keep_empty) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find_first_of(separators, from), text.size());
    if (keep_empty || to > from) parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

// `where` opens every message: "tuning.txt:12: ".
class RowParser {
 public:
  RowParser(std::string where, std::string origin) : where_(std::move(where)) {
    row_.origin = std::move(origin);
  }

  Row parse(const std::vector<std::string_view>& fields) {
    row_.collective = collective(fields[0]);
    for (std::size_t i = 1; i < fields.size(); ++i) field(fields[i]);
    if (!row_.algorithm)
      bad("no algorithm of ", name(row_.collective), ": expected one of ", algorithm_names(row_.collective));
    check();
    return std::move(row_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorCode::InvalidUsage, where_, parts...);
  }

  Collective collective(std::string_view text) const {
    const std::string wanted = plain(text);
    std::string names;
    for (const Collective candidate : every<Collective>()) {
      if (plain(name(candidate)) == wanted) return candidate;
      names += (names.empty() ? "" : ", ") + std::string(name(candidate));
    }
    for (const auto& [alias, candidate] : kAliases)
      if (alias == wanted) return candidate;
    bad("'", text, "' is not a collective: expected one of ", names);
  }

  void field(std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      condition(text.substr(0, equals), text.substr(equals + 1));
    else if (std::isdigit(static_cast<unsigned char>(text[0])))
      bytes(text);
    else
      algorithm(text);
  }

  void once(std::string_view what) {
    if (!seen_.insert(what).second) bad("a second ", what, ": expected one");
  }

  void condition(std::string_view key, std::string_view value) {
    if (key == "ranks") {
      once("ranks=");
      ranks(value);
    } else if (key == "dtype") {
      once("dtype=");
      dtypes(value);
    } else if (key == "reach") {
      once("reach=");
      if (value != "node" && value != "messages" && value != "any")
        bad("reach=", value, ": expected node, messages or any");
      row_.where = value == "node"       ? Row::Where::Node
                   : value == "messages" ? Row::Where::Messages
                                         : Row::Where::Anywhere;
    } else if (key == "blocks") {
      if (value != "even") bad("blocks=", value, ": expected even");
      row_.even_blocks = true;
    } else if (key == "order") {
      if (value != "library") bad("order=", value, ": expected library");
      row_.native_order = true;
    } else if (key == "leaders") {
      once("leaders=");
      leaders(value);
    } else {
      bad("'", key, "=' is not a condition: expected ranks=, dtype=, reach=, blocks=, order= or leaders=");
    }
  }

  void leaders(std::string_view value) {
    const auto wanted = number(value, false);
    if (!wanted || *wanted == 0 || *wanted > std::numeric_limits<int>::max())
      bad("leaders=", value, ": expected a number of ranks of each node, 1 or more");
    row_.leaders = static_cast<int>(*wanted);
  }

  void ranks(std::string_view value) {
    for (const std::string_view part : split(value, ",", true)) {
      if (part == "pow2" || part == "nonpow2") {
        row_.sizes = part == "pow2" ? Row::Sizes::PowersOfTwo : Row::Sizes::Others;
        continue;
      }
      const std::size_t dash = part.find('-');
      const auto low = number(part.substr(0, dash), false);
      auto high = low;
      if (dash != std::string_view::npos) high = number(part.substr(dash + 1), false);
      constexpr std::uint64_t most = std::numeric_limits<int>::max();
      if (!low || !high || *low == 0 || *low > most || *low > *high || (*high > most && *high != kUnlimited))
        bad("ranks=", value, ": expected a number, a range such as 3-8 or 3-inf, with ,pow2 or ,nonpow2");
      row_.least_ranks = static_cast<int>(*low);
      row_.most_ranks = static_cast<int>(std::min(*high, most));
    }
  }

  void dtypes(std::string_view value) {
    if (!reduces(row_.collective))
      bad("dtype=", value, ": ", name(row_.collective), " moves bytes of any type, expected no dtype=");
    row_.dtypes = 0;
    for (const std::string_view part : split(value, ",", true)) row_.dtypes |= types(part, value);
  }

  std::uint32_t types(std::string_view part, std::string_view value) const {
    if (part == "any") return kEveryDataType;
    for (const TypeClass& c : kTypeClasses)
      if (c.name == part) return c.types;
    if (const auto type = named<DataType>(part)) return bit(*type);
    bad("dtype=", value, ": '", part,
        "' is neither integer, float, half, float8 nor a dtype such as float32");
  }

  // `suffix`: accepts bytes such as "4K", too. "inf" is kUnlimited.
  static std::optional<std::uint64_t> number(std::string_view text, bool suffix) {
    if (text == "inf") return kUnlimited;
    const bool plain = text.find_first_not_of("0123456789") == std::string_view::npos;
    return plain || suffix ? bytes_of(text) : std::nullopt;
  }

  void bytes(std::string_view text) {
    once("range of bytes");
    const std::size_t dash = text.find('-');
    const auto from = number(text.substr(0, dash), true);
    const auto to = dash == std::string_view::npos ? std::nullopt : number(text.substr(dash + 1), true);
    if (!from || !to || *from >= *to)
      bad("'", text,
          "' is not a range of bytes: expected FROM-TO, such as 0-4K or 64K-inf, the end not included");
    if (!has_count(row_.collective) && (*from != 0 || *to != kUnlimited))
      bad("'", text, "': ", name(row_.collective),
          " has no bytes that are equal on all ranks, expected no range");
    row_.from_bytes = *from;
    row_.to_bytes = *to;
  }

  void algorithm(std::string_view text) {
    if (row_.algorithm) bad("two algorithms, ", row_.algorithm->name, " and ", text, ": expected one");
    row_.algorithm = find_algorithm(row_.collective, text);
    if (!row_.algorithm)
      bad("'", text, "' is not an algorithm of ", name(row_.collective), ": expected one of ",
          algorithm_names(row_.collective));
  }

  void check() const {
    const bool library = row_.algorithm->native() && reduces(row_.collective);
    if (library && may_round(row_) && !row_.native_order)
      bad("native may reduce floats in another order from call to call: expected dtype=integer, or "
          "order=library to accept that");
    if (row_.native_order && !library)
      bad("order=library with ", name(row_.collective), " ", row_.algorithm->name,
          ": expected it with native reductions only");
    if (row_.even_blocks && row_.collective != Collective::AllGather)
      bad("blocks=even with ", name(row_.collective), ": expected it with all_gather only");
    if (row_.leaders != 0 && !(row_.collective == Collective::AllReduce && row_.algorithm->two_level))
      bad("leaders=", row_.leaders, " with ", name(row_.collective), " ", row_.algorithm->name,
          ": expected it with all_reduce two_level only");
  }

  const std::string where_;
  Row row_;
  std::set<std::string_view> seen_;
};

std::string ranks_text(const Row& row) {
  constexpr int most = std::numeric_limits<int>::max();
  std::string text;
  if (row.least_ranks != 1 || row.most_ranks != most) {
    text = std::to_string(row.least_ranks);
    if (row.most_ranks != row.least_ranks)
      text += row.most_ranks == most ? "-inf" : "-" + std::to_string(row.most_ranks);
  }
  if (row.sizes != Row::Sizes::Any)
    text +=
        (text.empty() ? "" : ",") + std::string(row.sizes == Row::Sizes::PowersOfTwo ? "pow2" : "nonpow2");
  return text.empty() ? "" : "ranks=" + text;
}

std::string dtypes_text(std::uint32_t types) {
  if (types == kEveryDataType) return "";
  std::string text;
  const auto add = [&](std::string_view name, std::uint32_t mask) {
    if (mask == 0 || (types & mask) != mask) return;
    text += (text.empty() ? "dtype=" : ",") + std::string(name);
    types &= ~mask;
  };
  for (const TypeClass& c : kTypeClasses) add(c.name, c.types);
  for (const DataType t : every<DataType>()) add(name(t), bit(t));
  return text;
}

}  // namespace

void SelectionTable::append(std::vector<SelectionRow> rows) {
  for (Row& row : rows) rows_[static_cast<std::size_t>(row.collective)].push_back(std::move(row));
}

std::vector<SelectionRow> parse_table(std::string_view text, const std::string& source) {
  std::vector<Row> rows;
  int line = 0;
  for (const std::string_view whole : split(text, "\n", true)) {
    ++line;
    const auto fields = split(whole.substr(0, whole.find('#')), " \t\r", false);
    if (fields.empty()) continue;
    const std::string at = source + ":" + std::to_string(line);
    rows.push_back(RowParser(at + ": ", at).parse(fields));
  }
  return rows;
}

std::vector<SelectionRow> parse_overrides(std::string_view text, const std::string& source) {
  std::vector<Row> rows;
  for (const std::string_view whole : split(text, "#", false)) {
    const auto fields = split(whole, ": \t", false);
    if (fields.empty()) continue;
    rows.push_back(RowParser(source + ": in '" + std::string(whole) + "': ", source).parse(fields));
  }
  return rows;
}

std::string to_text(const SelectionRow& row) {
  std::string text(name(row.collective));
  const auto add = [&](std::size_t column, const std::string& field) {
    if (field.empty()) return;
    text.resize(std::max(text.size() + 1, column), ' ');
    text += field;
  };
  std::string conditions;
  const auto condition = [&](const std::string& field) {
    if (!field.empty()) conditions += (conditions.empty() ? "" : " ") + field;
  };
  condition(row.where == Row::Where::Node       ? "reach=node"
            : row.where == Row::Where::Messages ? "reach=messages"
                                                : "");
  condition(ranks_text(row));
  condition(dtypes_text(row.dtypes));
  condition(row.even_blocks ? "blocks=even" : "");
  condition(row.native_order ? "order=library" : "");
  condition(row.leaders ? "leaders=" + std::to_string(row.leaders) : "");
  add(16, conditions);
  if (row.from_bytes != 0 || row.to_bytes != kUnlimited)
    add(56, bytes_text(row.from_bytes) + "-" + bytes_text(row.to_bytes));
  add(68, row.algorithm->name);
  return text;
}

const SelectionTable& default_table() {
  static const SelectionTable table = [] {
    std::vector<Row> rows = parse_table(default_table_text(), "built-in table");
    for (Row& row : rows) row.origin = kBuiltIn;
    SelectionTable made;
    made.append(std::move(rows));
    return made;
  }();
  return table;
}

bool may_round(const SelectionRow& row) { return reduces(row.collective) && (row.dtypes & ~kIntegers); }

std::string algorithm_names(Collective collective, Bits bits) {
  std::string names;
  for (const Algorithm& a : algorithms())
    if (a.collective == collective && a.serves(bits))
      names += (names.empty() ? "" : ", ") + std::string(a.name);
  return names;
}

}  // namespace mpi_gdr
