#include "checker/symbolic_memory.hpp"

#include <algorithm>
#include <iterator>

namespace mpi_gdr {
namespace {

void append(Values& values, const Value& next) {
  if (!values.empty()) {
    Value& last = values.back();
    if (last.expression == next.expression && last.index + last.count == next.index) {
      last.count += next.count;
      return;
    }
  }
  values.push_back(next);
}

}  // namespace

Values SymbolicMemory::read(const Extent& extent) const {
  const auto& region = regions_[static_cast<std::size_t>(extent.region)];
  Values values;
  auto position = region.upper_bound(extent.begin);
  if (position != region.begin()) --position;
  std::uint64_t at = extent.begin;
  for (; position != region.end() && at < extent.end; ++position) {
    const auto& [first, value] = *position;
    if (first + value.count <= at) continue;
    if (first > at) break;
    const std::uint64_t until = std::min(first + value.count, extent.end);
    append(values, {until - at, value.expression, value.index + (at - first)});
    at = until;
  }
  if (at < extent.end)
    reject("reads ", text({extent.region, at, extent.end - at}), ", which is not initialised");
  return values;
}

void SymbolicMemory::write(const Extent& extent, const Values& values) {
  auto& region = regions_[static_cast<std::size_t>(extent.region)];
  auto position = region.upper_bound(extent.begin);
  if (position != region.begin()) --position;
  while (position != region.end() && position->first < extent.end) {
    const auto [first, value] = *position;
    const std::uint64_t last = first + value.count;
    if (last <= extent.begin) {
      ++position;
      continue;
    }
    position = region.erase(position);
    if (first < extent.begin) region[first] = {extent.begin - first, value.expression, value.index};
    if (last > extent.end)
      region[extent.end] = {last - extent.end, value.expression, value.index + (extent.end - first)};
  }
  std::uint64_t at = extent.begin;
  for (const Value& value : values) {
    const auto placed = region.insert_or_assign(at, value).first;
    at += value.count;
    if (placed == region.begin()) continue;
    const auto before = std::prev(placed);
    Value& left = before->second;
    if (before->first + left.count != placed->first || left.expression != value.expression ||
        left.index + left.count != value.index)
      continue;
    left.count += value.count;
    region.erase(placed);
  }
}

Values reduce(const std::vector<Values>& sources, Scale scale, ExpressionTable& table) {
  Values result;
  std::vector<std::size_t> at(sources.size(), 0);
  std::vector<std::uint64_t> used(sources.size(), 0);
  std::vector<ExpressionId> operands(sources.size());
  while (at[0] < sources[0].size()) {
    std::uint64_t count = ~std::uint64_t{0};
    for (std::size_t k = 0; k < sources.size(); ++k)
      count = std::min(count, sources[k][at[k]].count - used[k]);
    const std::uint64_t index = sources[0][at[0]].index + used[0];
    for (std::size_t k = 0; k < sources.size(); ++k) {
      const Value& value = sources[k][at[k]];
      if (value.index + used[k] != index)
        reject("combines element ", index, " with element ", value.index + used[k], " of the input");
      operands[k] = value.expression;
      used[k] += count;
      if (used[k] == value.count) {
        used[k] = 0;
        ++at[k];
      }
    }
    append(result, {count, table.reduced(operands, scale), index});
  }
  return result;
}

Values scaled(Values values, Scale scale, ExpressionTable& table) {
  for (Value& value : values) value.expression = table.scaled(value.expression, scale);
  return values;
}

}  // namespace mpi_gdr
