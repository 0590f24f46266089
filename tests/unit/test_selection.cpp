// The selection table: its text, and the order of its rows.
#include "engine_world.hpp"
#include "selected.hpp"

using namespace mpi_gdr;
using engine_tests::env_of;

namespace {

// These rows, then the built-in ones.
SelectionTable table_of(std::vector<SelectionRow> rows) {
  SelectionTable table;
  table.append(std::move(rows));
  for (int c = 0; c < kCollectiveCount; ++c) table.append(default_table().rows(static_cast<Collective>(c)));
  return table;
}
SelectionTable table_of(const char* text) { return table_of(parse_table(text, "tuning.txt")); }

}  // namespace

TEST(fields_of_a_row) {
  const auto rows = parse_table(
      "# a comment\n\n"
      "all_reduce ranks=4-16,nonpow2 dtype=half,int8 reach=node 1K-2m flag  # another\r\n"
      "\tbcast binomial\n"
      "Reduce_Scatter_Tensor dtype=float ranks=3 order=library 7-inf native\n"
      "all_reduce two_level leaders=12",
      "tuning.txt");
  CHECK(rows.size() == 4);
  const SelectionRow& row = rows[0];
  CHECK(row.collective == Collective::AllReduce && row.algorithm->name == std::string("flag"));
  CHECK(row.least_ranks == 4 && row.most_ranks == 16 && row.sizes == SelectionRow::Sizes::Others);
  CHECK(row.where == SelectionRow::Where::Node && !row.native_order);
  CHECK(row.from_bytes == 1024 && row.to_bytes == 2 << 20);
  CHECK(row.leaders == 0 && rows[3].leaders == 12);
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    CHECK((row.dtypes >> t & 1) ==
          (type == DataType::Float16 || type == DataType::BFloat16 || type == DataType::Int8));
    CHECK((rows[2].dtypes >> t & 1) == !is_integral(type));
  }
  CHECK(row.origin == "tuning.txt:3" && rows[1].origin == "tuning.txt:4");
  CHECK(rows[1].collective == Collective::Broadcast && rows[1].dtypes == kEveryDataType);
  CHECK(rows[1].least_ranks == 1 && rows[1].from_bytes == 0 && rows[1].to_bytes == kUnlimited);
  CHECK(rows[2].collective == Collective::ReduceScatter && rows[2].least_ranks == 3 &&
        rows[2].most_ranks == 3);
  CHECK(rows[2].from_bytes == 7 && rows[2].to_bytes == kUnlimited && rows[2].native_order);
}

TEST(mistakes_are_reported_with_file_line_and_what_was_expected) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"all_redcue ring", "t:2: 'all_redcue' is not a collective: expected one of all_reduce, broadcast"},
      {"all_reduce", "t:2: no algorithm of all_reduce: expected one of recursive_doubling, ring"},
      {"broadcast ring", "'ring' is not an algorithm of broadcast: expected one of binomial, chain"},
      {"broadcast binomial chain", "two algorithms, binomial and chain: expected one"},
      {"all_reduce 4K-4K ring", "'4K-4K' is not a range of bytes: expected FROM-TO"},
      {"all_reduce 4K ring", "'4K' is not a range of bytes"},
      {"all_reduce 0-4X ring", "'0-4X' is not a range of bytes"},
      {"all_reduce 0-99999999999999999999 ring", "is not a range of bytes"},
      {"all_reduce 0-4K 4K-8K ring", "a second range of bytes: expected one"},
      {"all_reduce ranks=0 ring", "ranks=0: expected a number"},
      {"all_reduce ranks=5-3 ring", "ranks=5-3: expected a number, a range such as 3-8"},
      {"all_reduce ranks=2 ranks=3 ring", "a second ranks=: expected one"},
      {"all_reduce dtype=fp32 ring",
       "dtype=fp32: 'fp32' is neither integer, float, half, float8 nor a dtype"},
      {"broadcast dtype=float32 chain", "broadcast moves bytes of any type, expected no dtype="},
      {"all_reduce reach=gpu ring", "reach=gpu: expected node, messages or any"},
      {"all_reduce size=3 ring", "'size=' is not a condition: expected ranks=, dtype="},
      {"barrier 0-4K flag", "barrier has no bytes that are equal on all ranks, expected no range"},
      {"all_to_all 0-4K pairwise", "all_to_all has no bytes"},
      {"all_reduce native",
       "may reduce floats in another order from call to call: expected dtype=integer, or "},
      {"reduce dtype=float32 native", "order=library"},
      {"all_reduce order=library ring",
       "order=library with all_reduce ring: expected it with native reductions"},
      {"broadcast order=library native", "expected it with native reductions only"},
      {"reduce_scatter blocks=even ring", "expected it with all_gather only"},
      {"all_reduce leaders=0 two_level",
       "t:2: leaders=0: expected a number of ranks of each node, 1 or more"},
      {"all_reduce leaders=-1 two_level", "leaders=-1: expected a number"},
      {"all_reduce leaders=2-4 two_level", "leaders=2-4: expected a number"},
      {"all_reduce leaders=1K two_level", "leaders=1K: expected a number"},
      {"all_reduce leaders=inf two_level", "leaders=inf: expected a number"},
      {"all_reduce leaders=2147483648 two_level", "leaders=2147483648: expected a number"},
      {"all_reduce leaders= two_level", "leaders=: expected a number"},
      {"all_reduce leaders=1 leaders=2 two_level", "a second leaders=: expected one"},
      {"all_reduce leaders=2 ring",
       "t:2: leaders=2 with all_reduce ring: expected it with all_reduce two_level only"},
      {"reduce_scatter leaders=2 two_level", "leaders=2 with reduce_scatter two_level: expected it with"},
  };
  for (const auto& [row, message] : mistakes)
    CHECK_THROWS(parse_table(std::string("# first line\n") + row + "\n", "t"), Error, message);
  CHECK_THROWS(parse_overrides("barrier:flag#all_reduce:0-4K:fleg", "MPI_GDR_SELECT"), Error,
               "MPI_GDR_SELECT: in 'all_reduce:0-4K:fleg': 'fleg' is not an algorithm of all_reduce");
  CHECK_THROWS(parse_overrides("all_reduce:leaders=two:two_level", "MPI_GDR_SELECT"), Error,
               "MPI_GDR_SELECT: in 'all_reduce:leaders=two:two_level': leaders=two: expected a number");
}

TEST(text_of_a_row_gives_the_same_row) {
  for (const char* text : {
           "all_reduce reach=messages ranks=3-inf dtype=half,float64,int8 4K-6M rabenseifner",
           "all_reduce ranks=1-7,pow2 dtype=integer 0-1G native",
           "reduce order=library dtype=float 3-5 native",
           "all_gather blocks=even reach=node ring",
           "barrier flag",
           "all_reduce ranks=4-inf dtype=float leaders=2 256K-inf two_level",
       }) {
    const std::string printed = to_text(parse_table(text, "t").at(0));
    const SelectionRow once = parse_table(text, "t").at(0), again = parse_table(printed, "t").at(0);
    CHECK(to_text(again) == printed);
    CHECK(once.collective == again.collective && once.algorithm == again.algorithm);
    CHECK(once.least_ranks == again.least_ranks && once.most_ranks == again.most_ranks);
    CHECK(once.sizes == again.sizes && once.dtypes == again.dtypes && once.where == again.where);
    CHECK(once.even_blocks == again.even_blocks && once.native_order == again.native_order);
    CHECK(once.from_bytes == again.from_bytes && once.to_bytes == again.to_bytes);
    CHECK(once.leaders == again.leaders);
  }
}

TEST(the_built_in_table_printed_and_parsed_chooses_the_same) {
  std::string printed;
  for (int c = 0; c < kCollectiveCount; ++c)
    for (const SelectionRow& row : default_table().rows(static_cast<Collective>(c)))
      printed += to_text(row) + "\n";
  SelectionTable again;
  again.append(parse_table(printed, "printed"));
  long compared = 0;
  for (int c = 0; c < kCollectiveCount; ++c)
    for (const Reach reach : {Reach::None, Reach::Segments, Reach::All})
      for (const int size : {1, 2, 3, 4, 5, 8, 9, 33, 64, 255, 257, 1024})
        for (const DataType type : {DataType::Float32, DataType::BFloat16, DataType::Int64, DataType::Bool})
          for (const bool native : {false, true})
            for (int exponent = 0; exponent < 40; ++exponent)
              for (const int below : {0, 8}) {
                const std::uint64_t bytes = (std::uint64_t{1} << exponent) + 8 - static_cast<unsigned>(below);
                const CollectiveSpec spec = call(static_cast<Collective>(c), size, bytes, type);
                CHECK(chosen(again, spec, native, reach) == chosen(default_table(), spec, native, reach));
                ++compared;
              }
  CHECK(compared == 9L * 3 * 12 * 4 * 2 * 40 * 2);
}

TEST(built_in_reductions_of_the_library_are_for_integers_only) {
  for (int c = 0; c < kCollectiveCount; ++c)
    for (const SelectionRow& row : default_table().rows(static_cast<Collective>(c))) CHECK(!row.native_order);
}

TEST(the_first_row_that_fits_wins) {
  const SelectionTable table = table_of(
      "all_reduce ranks=4 dtype=float32 0-1K rabenseifner\n"
      "all_reduce ranks=3-8,pow2 reach=messages ring\n"
      "all_reduce reach=node 0-1M staged\n");
  using C = Collective;
  CHECK(chosen(table, call(C::AllReduce, 4, 1020)) == "rabenseifner");
  CHECK(chosen(table, call(C::AllReduce, 4, 1024)) == "ring");
  CHECK(chosen(table, call(C::AllReduce, 4, 1020, DataType::Float64)) == "ring");
  CHECK(chosen(table, call(C::AllReduce, 8, 8)) == "ring");
  CHECK(chosen(table, call(C::AllReduce, 5, 8)) == "recursive_doubling");  // the built-in rows
  CHECK(chosen(table, call(C::AllReduce, 2, 8)) == "recursive_doubling");
  CHECK(chosen(table, call(C::AllReduce, 8, 8), false, Reach::All) == "staged");
  CHECK(chosen(table, call(C::AllReduce, 8, 8), false, Reach::Segments) == "staged");
  CHECK(chosen(table, call(C::AllReduce, 8, 1 << 20), false, Reach::All) == "adaptive");
}

TEST(a_row_that_cannot_run_a_call_is_passed_over) {
  const SelectionTable table = table_of(
      "all_reduce zero_copy\n"
      "all_reduce order=library native\n"
      "reduce staged\n"
      "all_gather native\n");
  using C = Collective;
  const CollectiveSpec sum = call(C::AllReduce, 4, 64);
  CHECK(chosen(table, sum, true, Reach::All) == "zero_copy");
  CHECK(chosen(table, sum, true, Reach::Segments) == "native");
  CHECK(chosen(table, sum, true) == "native");
  CHECK(chosen(table, sum, false) == "recursive_doubling");
  CHECK(chosen(table, call(C::Reduce, 2, 1 << 20), false, Reach::All) == "staged");
  CHECK(chosen(table, call(C::Reduce, 2, std::uint64_t{1} << 30), false, Reach::All) == "zero_copy");
  CHECK(chosen(table, call(C::AllGather, 2, 8), true) == "native");
  CHECK(chosen(table, call(C::AllGather, 2, 8), false) == "recursive_doubling");
}

TEST(rows_of_one_algorithm_differ_in_leaders) {
  const SelectionTable table = table_of(parse_overrides(
      "all_reduce:0-64K:leaders=1:two_level#all_reduce:64K-1M:leaders=3:two_level#all_reduce:two_level",
      "s"));
  CollectiveSpec spec = call(Collective::AllReduce, 8, 4096);
  CHECK(chosen(table, spec) == "recursive_doubling");  // on one node
  spec.topology = std::make_shared<const Topology>(std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1});
  const std::pair<std::uint64_t, int> expected[] = {{4096, 1}, {65532, 1}, {65536, 3}, {1 << 20, 0}};
  for (const auto& [bytes, leaders] : expected) {
    spec.count = bytes / 4;
    const SelectionRow& row = select_row(spec, false, Reach::None, table);
    CHECK(row.algorithm->two_level && row.leaders == leaders);
  }
  std::vector<std::pair<std::uint64_t, int>> shown;  // adjacent ranges of one source stay separate
  for (const SelectionRange& range : selection_ranges(8, Reach::None, table, DataType::Float32, true))
    if (range.collective == Collective::AllReduce) shown.emplace_back(range.from_bytes, range.leaders);
  CHECK((shown == std::vector<std::pair<std::uint64_t, int>>{{0, 1}, {64 << 10, 3}, {1 << 20, 0}}));
}

TEST(a_plan_has_the_leaders_of_its_row) {
  Planner planner(env_of({}), {"all_reduce:0-64K:leaders=1:two_level#all_reduce:two_level", ""});
  const auto topology = std::make_shared<const Topology>(std::vector<int>{0, 0, 1, 1});
  CollectiveSpec spec = call(Collective::AllReduce, 4, 4096);
  spec.rank = 1;  // second on its node
  const auto crosses = [&] {
    const Plan plan = planner.plan(spec, true, Reach::None, topology);
    CHECK(plan.algorithm->two_level);
    const auto& steps = plan.schedule->steps;
    return std::any_of(steps.begin(), steps.end(),
                       [&](const Step& s) { return s.peer >= 0 && topology->node(s.peer) == 1; });
  };
  for (int again = 0; again < 2; ++again)  // built, then cached
    for (const auto& [bytes, leaders] : {std::pair{4096, 1}, {65536, 0}}) {
      spec.count = bytes / 4;
      CHECK(crosses() == (leaders != 1));
      const SelectionRow& choice = planner.choice(spec, true, Reach::None, topology);
      CHECK(choice.algorithm->two_level && choice.leaders == leaders);
    }
}

TEST(a_group_reports_its_choices) {
  engine_tests::World world(2, {.env = env_of({{"MPI_GDR_SELECT", "all_reduce:0-4K:ring"}})});
  CHECK(world.ranks[0].group->algorithm(call(Collective::AllReduce, 2, 4092)) == "ring");
  CHECK(world.ranks[0].group->algorithm(call(Collective::AllReduce, 2, 4096)) == "recursive_doubling");
  CHECK(world.ranks[0].group->reach() == Reach::None);
  CollectiveSpec bad = call(Collective::AllReduce, 2, 4, DataType::Bool);
  bad.op = ReduceOp::Avg;
  CHECK_THROWS(world.ranks[0].group->algorithm(bad), Error, "op=avg is not defined on bool");
  world.close();
}

TEST(selection_agrees_with_its_table) {
  for (const Reach reach : {Reach::None, Reach::Segments, Reach::All})
    for (const int p : {1, 2, 4, 8, 31, 32, 1000})
      for (int c = 0; c < kCollectiveCount; ++c) {
        const auto collective = static_cast<Collective>(c);
        std::uint64_t expected_from = 0;
        for (const SelectionRange& range : selection_ranges(p, reach)) {
          if (range.collective != collective) continue;
          CHECK(range.from_bytes == expected_from);
          expected_from = range.to_bytes;
          CollectiveSpec spec = call(collective, p, 0);
          const std::uint64_t item = item_size(spec.dtype);
          spec.count = (range.from_bytes + item - 1) / item;
          CHECK(select_row(spec, false, reach).algorithm->name == range.algorithm);
          spec.count = (range.to_bytes - 1) / item;
          CHECK(select_row(spec, false, reach).algorithm->name == range.algorithm);
        }
        CHECK(expected_from == std::numeric_limits<std::uint64_t>::max());
      }
}

TEST(reductions_of_floats_are_never_native_by_default) {
  for (const Collective collective : {Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter})
    for (const std::uint64_t count : {1, 1000, 1 << 24})
      CHECK(!select_row(call(collective, 4, count), true).algorithm->native());
  CollectiveSpec spec = call(Collective::AllReduce, 4, 10);
  spec.dtype = DataType::Int64;
  CHECK(select_row(spec, true).algorithm->native());
}

TEST(selection_inside_a_node_keeps_to_what_is_possible) {
  for (int c = 0; c < kCollectiveCount; ++c)
    for (const int p : {2, 3, 64})
      for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{1} << 22, std::uint64_t{1} << 40}) {
        CollectiveSpec spec = call(static_cast<Collective>(c), p, count * 4);
        if (spec.collective == Collective::AllToAll) continue;
        CHECK(!select_row(spec, false).algorithm->shared);
        CHECK(std::string(select_row(spec, false, Reach::Segments).algorithm->name) != "zero_copy");
        // A schedule through Staging grows with its data and is not selected for a TiB.
        const Algorithm& far = *select_row(spec, false, Reach::Segments).algorithm;
        CHECK(!far.shared || count < (std::uint64_t{1} << 28) || spec.collective == Collective::Barrier);
        if (!reduces(spec.collective) || spec.collective == Collective::AllReduce) continue;
        spec.op = ReduceOp::PreMulSum;
        const Algorithm& scaled = *select_row(spec, false, Reach::All).algorithm;
        CHECK(!scaled.shared || count < (std::uint64_t{1} << 28));
      }
}

TEST(native_reductions_are_a_default_for_integers_only) {
  CollectiveSpec spec = call(Collective::AllReduce, 4, 64);
  CHECK(std::string(select_row(spec, true).algorithm->name) == "recursive_doubling");
  spec.dtype = DataType::Int64;
  CHECK(std::string(select_row(spec, true).algorithm->name) == "native");
  CHECK(std::string(select_row(spec, false).algorithm->name) == "recursive_doubling");
  spec.dtype = DataType::Bool;
  CHECK(std::string(select_row(spec, true).algorithm->name) == "native");
  spec.dtype = DataType::BFloat16;
  CHECK(std::string(select_row(spec, true).algorithm->name) == "recursive_doubling");
}

UNIT_MAIN()
