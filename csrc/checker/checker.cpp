#include "checker/checker.hpp"

#include <numeric>

#include "checker/simulation.hpp"
#include "common/error.hpp"

namespace mpi_gdr {
namespace {

void check_arguments(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules) {
  if (specs.empty() || specs.size() != schedules.size())
    fail(ErrorCode::InvalidUsage, "check: ", specs.size(), " specs and ", schedules.size(),
         " schedules, expected as many of both as there are ranks");
  for (std::size_t r = 0; r < specs.size(); ++r) {
    const CollectiveSpec& spec = specs[r];
    const CollectiveSpec& first = specs[0];
    if (spec.rank != static_cast<int>(r) || spec.size != static_cast<int>(specs.size()))
      fail(ErrorCode::InvalidUsage, "check: specs[", r, "] has rank=", spec.rank, ", size=", spec.size);
    if (spec.collective != first.collective || spec.root != first.root || spec.count != first.count ||
        spec.dtype != first.dtype || spec.op != first.op || spec.counts != first.counts)
      fail(ErrorCode::InvalidUsage, "check: specs[", r, "] describes another collective than specs[0]");
    if (traits(spec.collective).input == Contents::Splits &&
        (spec.send_counts.size() != specs.size() || spec.recv_counts.size() != specs.size()))
      fail(ErrorCode::InvalidUsage, "check: specs[", r, "] lacks one count for each of ", specs.size(),
           " ranks");
    if (!schedules[r]) fail(ErrorCode::InvalidUsage, "check: schedules[", r, "] is empty");
  }
}

template <typename... What>
[[noreturn]] void wrong_output(int rank, std::uint64_t at, const Value& value, const What&... what) {
  reject("rank ", rank, " ends with ", text({Buffer::Output, at, value.count}), " ", what...);
}

void expect_copy(Simulation& run, int rank, const Slice& slice, int source, std::uint64_t index) {
  if (slice.count == 0) return;
  std::uint64_t at = slice.offset;
  for (const Value& value : run.output(rank, slice)) {
    if (value.expression != run.expressions().input(source) || value.index != index + (at - slice.offset))
      wrong_output(rank, at, value, "from input element ", value.index, " of rank ",
                   run.expressions()[value.expression].ranks.text(), " instead of element ",
                   index + (at - slice.offset), " of rank ", source);
    at += value.count;
  }
}

void expect_blocks(Simulation& run, const CollectiveSpec& spec) {
  std::uint64_t offset = 0;
  for (int source = 0; source < spec.size; ++source) {
    const std::uint64_t count = block_count(spec, source);
    expect_copy(run, spec.rank, {Buffer::Output, offset, count}, source, 0);
    offset += count;
  }
}

// Returns k if `fold` is a left fold of ranks 0 to k-1, in this order, else 0. `nested`: its first operand
// may be such a fold, too, since nothing is rounded between the two.
int left_fold(const ExpressionTable& table, const Expression& fold, bool nested) {
  int next = 0;
  for (const ExpressionId operand : fold.operands) {
    const Expression* value = &table[operand];
    if (next == 0 && nested && value->operands.size() > 1) {
      next = left_fold(table, *value, nested);
      if (next == 0) return 0;
      continue;
    }
    if (value->multiplied && value->operands.size() == 1) value = &table[value->operands[0]];
    if (!value->operands.empty() || value->ranks.text() != std::to_string(next)) return 0;
    ++next;
  }
  return next;
}

void expect_reduction(Simulation& run, const CollectiveSpec& spec, const Slice& slice, std::uint64_t index,
                      const Schedule& claims) {
  if (slice.count == 0) return;
  std::uint64_t at = slice.offset;
  for (const Value& value : run.output(spec.rank, slice)) {
    const Expression& expression = run.expressions()[value.expression];
    if (value.index != index + (at - slice.offset))
      wrong_output(spec.rank, at, value, "computed from input element ", value.index);
    if (!expression.ranks.complete(spec.size))
      wrong_output(spec.rank, at, value, "holding the contributions of ranks ", expression.ranks.text(),
                   " only");
    if (expression.multiplied != (spec.op == ReduceOp::PreMulSum))
      wrong_output(spec.rank, at, value, "not multiplied by the factor");
    if (expression.averaged != (spec.op == ReduceOp::Avg)) wrong_output(spec.rank, at, value, "not averaged");
    const Expression& fold = expression.averaged ? run.expressions()[expression.operands[0]] : expression;
    const bool nested = !claims.flat && keeps_sums(spec.dtype);
    if (claims.ordered && spec.size > 1 && left_fold(run.expressions(), fold, nested) != spec.size)
      wrong_output(spec.rank, at, value, "folded in another order than that of ranks");
    at += value.count;
  }
}

void expect_same_order(Simulation& run, int rank, const Slice& whole) {
  if (whole.count == 0) return;
  const Values first = run.output(0, whole), mine = run.output(rank, whole);
  std::size_t k = 0;
  while (k < first.size() && k < mine.size() && first[k].count == mine[k].count &&
         first[k].expression == mine[k].expression)
    ++k;
  if (k < first.size() || k < mine.size())
    reject("rank ", rank, " reduces element ", first[k].index, " in another order than rank 0");
}

void expect_splits(Simulation& run, const std::vector<CollectiveSpec>& specs, int rank) {
  std::uint64_t offset = 0;
  for (const CollectiveSpec& source : specs) {
    const auto begin = source.send_counts.begin();
    const std::uint64_t count =
        specs[static_cast<std::size_t>(rank)].recv_counts[static_cast<std::size_t>(source.rank)];
    expect_copy(run, rank, {Buffer::Output, offset, count}, source.rank,
                std::accumulate(begin, begin + rank, std::uint64_t{0}));
    offset += count;
  }
}

void check_outcome(Simulation& run, const std::vector<CollectiveSpec>& specs, const Schedule& claims) {
  for (const CollectiveSpec& spec : specs) {
    const CollectiveTraits& kind = traits(spec.collective);
    const Slice whole{Buffer::Output, 0, output_count(spec)};
    const std::uint64_t index = kind.output == Contents::Block ? block_offset(spec, spec.rank) : 0;
    if (kind.output == Contents::None) {
      if (!run.predecessors(spec.rank).complete(spec.size))
        reject("rank ", spec.rank, " leaves the barrier when only ranks ", run.predecessors(spec.rank).text(),
               " have entered it");
    } else if (kind.output == Contents::Splits) {
      expect_splits(run, specs, spec.rank);
    } else if (kind.root == Root::Receives && spec.rank != spec.root) {
      continue;
    } else if (kind.reduces) {
      expect_reduction(run, spec, whole, index, claims);
      if (kind.output == Contents::Whole && spec.rank > 0 && kind.root == Root::None)
        expect_same_order(run, spec.rank, whole);
    } else if (kind.output == Contents::Blocks) {
      expect_blocks(run, spec);
    } else {
      expect_copy(run, spec.rank, whole, spec.root, index);
    }
  }
}

}  // namespace

CheckResult check(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules,
                  const CheckMode& mode) {
  check_arguments(specs, schedules);
  CheckResult result;
  try {
    for (std::size_t r = 0; r < specs.size(); ++r)
      check_rank(specs[r], *schedules[r], mode.is_aliased(static_cast<int>(r)));
    Simulation run(specs, schedules, mode);
    run.run();
    result = run.costs();
    check_outcome(run, specs, *schedules[0]);
  } catch (const CheckFailure& failure) {
    result.ok = false;
    result.error = schedules[0]->algorithm;
    if (mode.synchronous_sends) result.error += ", synchronous sends";
    if (mode.device_queue) result.error += ", device queue";
    if (mode.aliased != CheckMode::Aliased::None) result.error += ", in place";
    if (mode.aliased == CheckMode::Aliased::Odd) result.error += " on odd ranks";
    result.error += ": ";
    result.error += failure.what();
  }
  return result;
}

CheckResult check(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules) {
  // Synchronous sends and the device queue only add waits: a schedule that passes with them passes without.
  CheckResult result;
  using Aliased = CheckMode::Aliased;
  for (const Aliased aliased : {Aliased::None, Aliased::All, Aliased::Odd}) {
    if (aliased != Aliased::None && !has_alias(specs[0].collective)) break;
    // The buffers of other ranks matter only to schedules that access them.
    if (aliased == Aliased::Odd && !(schedules[0] && schedules[0]->shared)) break;
    result = check(specs, schedules, {true, true, aliased});
    if (result.ok) continue;
    // The mode with the fewest constraints that fails gives the clearest report.
    for (const CheckMode& simpler : {CheckMode{false, false, aliased}, CheckMode{true, false, aliased},
                                     CheckMode{false, true, aliased}}) {
      const CheckResult simple = check(specs, schedules, simpler);
      if (!simple.ok) return simple;
    }
    return result;
  }
  return result;
}

}  // namespace mpi_gdr
