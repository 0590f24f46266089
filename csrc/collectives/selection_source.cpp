#include "collectives/selection_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/error.hpp"
#include "common/fnv1a.hpp"
#include "common/rank_list.hpp"

namespace mpi_gdr {
namespace {

constexpr const char* kSelect = "MPI_GDR_SELECT";
constexpr const char* kGroupRows = "Options.selection";

std::vector<SelectionRow> forced_row(const Env& env, Collective collective) {
  const std::string& wanted = env.algorithm[static_cast<int>(collective)];
  if (wanted.empty()) return {};
  SelectionRow row;
  row.collective = collective;
  row.algorithm = find_algorithm(collective, wanted);
  row.origin = Env::algorithm_variable(collective);
  if (!row.algorithm)
    fail(ErrorCode::InvalidUsage, row.origin, "=", wanted, " is not an algorithm of ", name(collective),
         ": expected one of ", algorithm_names(collective));
  // A user who forces one algorithm accepts its order.
  row.native_order = reduces(collective) && row.algorithm->native();
  return {std::move(row)};
}

// For rows of variables and options. Rows of a file that do not serve `bits` are skipped instead.
void check_bits(const std::vector<SelectionRow>& rows, Bits bits) {
  const bool exact = bits == Bits::Exact;
  for (const SelectionRow& row : rows)
    if (may_round(row) && !row.algorithm->serves(bits))
      fail(ErrorCode::InvalidUsage, row.origin, ": ", row.algorithm->name, " for ", name(row.collective),
           exact ? " does not sum the contributions of all ranks at once"
                 : " does not fold in the order of ranks",
           ", which MPI_GDR_BITS=", name(bits), " (or Options.bits) asks for: expected one of ",
           algorithm_names(row.collective, bits));
}

std::vector<SelectionRow> rows_of_file(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path);
  std::ostringstream text;
  // Opening a directory succeeds, reading it does not.
  if (!file || (file.peek() != std::ifstream::traits_type::eof() && !(text << file.rdbuf())) || file.bad())
    fail(ErrorCode::InvalidUsage, "MPI_GDR_TUNING=", path, " cannot be read: ", std::strerror(errno));
  return parse_table(text.str(), path);
}

// Independent of comments and spaces in the source.
std::string digest(const std::vector<SelectionRow>& rows) {
  Fnv1a hash;
  for (const SelectionRow& row : rows) hash.add(to_text(row) + '\n');
  return hash.hex();
}

const std::string& default_digest() {
  static const std::string value = digest(parse_table(default_table_text(), "built-in table"));
  return value;
}

}  // namespace

Selection load_selection(const Env& env, const GroupSelection& group) {
  const auto from_variable = parse_overrides(env.select, kSelect);
  const auto from_options = parse_overrides(group.rows, kGroupRows);
  const auto from_file = rows_of_file(env.tuning_file);
  Selection made;
  // Replaces the setting of a variable, or appends one.
  const auto compare = [&](const std::string& name, std::string value, const std::string& shown) {
    auto at = std::ranges::find(made.settings, name, &SharedSetting::name);
    if (at == made.settings.end()) at = made.settings.insert(at, SharedSetting{name, "", ""});
    at->value = std::move(value);
    at->shown = shown.empty() ? "not set" : shown;
  };
  for (const Env::Variable& variable : env.table())
    if (variable.ranks == Env::Ranks::Equal) compare(variable.name, variable.value, variable.value);
  const bool detail = env.debug == LogLevel::Detail;
  compare("MPI_GDR_DEBUG", detail ? "DETAIL" : "", detail ? "DETAIL" : "not DETAIL");
  const Bits bits = group.bits.empty() ? env.bits : parse_bits("Options.bits", group.bits);
  made.table.keep(bits);
  check_bits(from_variable, bits);
  check_bits(from_options, bits);
  const std::string kept(bits == Bits::Any ? "" : name(bits));
  compare("MPI_GDR_BITS", kept, kept);
  for (const Collective c : every<Collective>()) {
    const auto forced = forced_row(env, c);
    check_bits(forced, bits);
    made.table.append(forced);
  }
  made.table.append(from_variable);
  compare(kSelect, digest(from_variable), env.select);
  made.table.append(from_options);
  compare(kGroupRows, digest(from_options), group.rows);
  made.table.append(from_file);
  const std::string rows = std::to_string(from_file.size()) + (from_file.size() == 1 ? " row" : " rows");
  compare(
      "MPI_GDR_TUNING", digest(from_file),
      env.tuning_file.empty() ? "" : env.tuning_file + " (" + rows + ", digest " + digest(from_file) + ")");
  for (const Collective c : every<Collective>()) made.table.append(default_table().rows(c));
  made.has_user_rows = !from_variable.empty() || !from_options.empty() || !from_file.empty();
  compare("the built-in selection table", default_digest(), "digest " + default_digest());
  return made;
}

Bits parse_bits(const std::string& argument, const std::string& text) {
  if (const auto bits = named<Bits>(text)) return *bits;
  fail(ErrorCode::InvalidUsage, argument, "=", text, ", expected any, order or exact");
}

std::string disagreement(const std::vector<std::vector<SharedSetting>>& by_rank) {
  for (std::size_t r = 1; r < by_rank.size(); ++r)
    if (by_rank[r].size() != by_rank[0].size())
      return "rank " + std::to_string(r) + " has another release of mpi-gdr than rank 0";
  std::string text;
  for (std::size_t s = 0; s < by_rank[0].size(); ++s) {
    std::vector<std::pair<const SharedSetting*, std::vector<int>>> sides;  // in order of their first rank
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      const SharedSetting& setting = by_rank[r][s];
      auto side = std::find_if(sides.begin(), sides.end(),
                               [&](const auto& known) { return known.first->value == setting.value; });
      if (side == sides.end()) side = sides.insert(side, {&setting, {}});
      side->second.push_back(static_cast<int>(r));
    }
    if (sides.size() < 2) continue;
    text += (text.empty() ? "" : "; ") + sides[0].first->name + " is ";
    for (std::size_t i = 0; i < sides.size(); ++i)
      text += (i == 0                 ? ""
               : i + 1 < sides.size() ? ", "
                                      : " and ") +
              sides[i].first->shown + (sides[i].second.size() > 1 ? " on ranks " : " on rank ") +
              rank_list(sides[i].second);
  }
  return text;
}

}  // namespace mpi_gdr
