#include "checker/expression.hpp"

#include <algorithm>

namespace mpi_gdr {

int RankSet::merge(const RankSet& other) {
  int common = -1;
  std::vector<std::pair<int, int>> all = intervals_, merged;
  all.insert(all.end(), other.intervals_.begin(), other.intervals_.end());
  std::sort(all.begin(), all.end());
  for (const auto& interval : all) {
    if (merged.empty() || interval.first > merged.back().second) {
      merged.push_back(interval);
      continue;
    }
    if (interval.first < merged.back().second) common = interval.first;
    merged.back().second = std::max(merged.back().second, interval.second);
  }
  intervals_ = std::move(merged);
  return common;
}

std::string RankSet::text() const {
  std::string out;
  for (const auto& [first, last] : intervals_) {
    if (!out.empty()) out += ",";
    out += std::to_string(first);
    if (last - first > 1) out += "-" + std::to_string(last - 1);
  }
  return out.empty() ? "none" : out;
}

ExpressionId ExpressionTable::intern(std::vector<ExpressionId> key, Expression expression) {
  const auto [position, fresh] =
      interned_.try_emplace(std::move(key), static_cast<ExpressionId>(expressions_.size()));
  if (fresh) expressions_.push_back(std::move(expression));
  return position->second;
}

ExpressionId ExpressionTable::input(int rank) {
  return intern({-1, rank}, {{}, RankSet(rank), false, false});
}

ExpressionId ExpressionTable::scaled(ExpressionId operand, Scale scale) {
  if (scale == Scale::None) return operand;
  Expression result = (*this)[operand];
  if (scale == Scale::PreMul) {
    if (op_ != ReduceOp::PreMulSum) reject("multiplies by a factor that the operation does not have");
    if (result.multiplied) reject("multiplies by the factor twice");
    if (!result.operands.empty()) reject("multiplies by the factor after a reduction");
    result.multiplied = true;
  } else {
    if (op_ != ReduceOp::Avg) reject("averages although the operation does not");
    if (result.averaged) reject("averages twice");
    result.averaged = true;
  }
  result.operands = {operand};
  return intern({scale == Scale::PreMul ? -2 : -3, operand}, std::move(result));
}

ExpressionId ExpressionTable::reduced(const std::vector<ExpressionId>& operands, Scale scale) {
  std::vector<ExpressionId> key{-4};
  key.insert(key.end(), operands.begin(), operands.end());
  ExpressionId sum;
  const auto position = interned_.find(key);
  if (position != interned_.end()) {
    sum = position->second;
  } else {
    Expression result{operands, {}, true, false};
    for (const ExpressionId id : operands) {
      const Expression& operand = (*this)[id];
      if (operand.averaged) reject("reduces a value that was averaged before all ranks were in it");
      if (op_ == ReduceOp::PreMulSum && !operand.multiplied)
        reject("reduces a value of rank ", operand.ranks.text(), " that was not multiplied by the factor");
      const int twice = result.ranks.merge(operand.ranks);
      if (twice >= 0) reject("counts the contribution of rank ", twice, " twice");
      result.multiplied = result.multiplied && operand.multiplied;
    }
    sum = intern(std::move(key), std::move(result));
  }
  return scaled(sum, scale);
}

}  // namespace mpi_gdr
