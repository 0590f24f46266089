// Expressions over the inputs of all ranks; equal ordered expressions have equal ids. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.hpp"

namespace mpi_gdr {

struct CheckFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <typename... Parts>
[[noreturn]] void reject(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw CheckFailure(text.str());
}

// Sorted, disjoint, non-adjacent intervals [first, second): few, as collectives combine neighbours.
class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(int rank) : intervals_{{rank, rank + 1}} {}
  // Adds `other`; returns a rank that was in both, or -1.
  int merge(const RankSet& other);
  bool complete(int size) const { return intervals_ == std::vector<std::pair<int, int>>{{0, size}}; }
  std::string text() const;

 private:
  std::vector<std::pair<int, int>> intervals_;
};

using ExpressionId = std::int32_t;

struct Expression {
  std::vector<ExpressionId> operands;  // empty: a rank's input
  RankSet ranks;                       // ranks whose inputs it contains, each once
  bool multiplied = false;             // every input was multiplied by the factor
  bool averaged = false;
};

class ExpressionTable {
 public:
  explicit ExpressionTable(ReduceOp op) : op_(op) {}
  ExpressionId input(int rank);
  // Throw CheckFailure if values may not be combined like this.
  ExpressionId scaled(ExpressionId operand, Scale scale);
  ExpressionId reduced(const std::vector<ExpressionId>& operands, Scale scale);
  const Expression& operator[](ExpressionId id) const { return expressions_[static_cast<std::size_t>(id)]; }

 private:
  ExpressionId intern(std::vector<ExpressionId> key, Expression expression);
  ReduceOp op_;
  std::vector<Expression> expressions_;
  std::map<std::vector<ExpressionId>, ExpressionId> interned_;  // {kind, operands ...}
};

}  // namespace mpi_gdr
