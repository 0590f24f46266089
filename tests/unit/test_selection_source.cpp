// Sources of a group's selection table, and their comparison between ranks.
#include "collectives/selection_source.hpp"
#include "engine_world.hpp"
#include "selected.hpp"

using namespace mpi_gdr;
using engine_tests::env_of;

namespace {

struct File {
  explicit File(const std::string& text) { std::ofstream(path) << text; }
  const unit::Folder folder;
  const std::string path = folder.path + "/table";
};

}  // namespace

TEST(order_of_the_sources) {
  const File file("barrier native\nall_reduce 0-1M ring\nbroadcast chain\nscatter binomial\n");
  const Env env = env_of({{"MPI_GDR_BARRIER_ALGO", "dissemination"},
                          {"MPI_GDR_SELECT", "barrier:native#allreduce:0-4k:rabenseifner"},
                          {"MPI_GDR_TUNING", file.path}});
  const auto [table, settings, named] =
      load_selection(env, {"all_reduce:0-64K:recursive_doubling#bcast:binomial", ""});
  using C = Collective;
  CHECK(chosen(table, call(C::Barrier, 4, 0), true) == "dissemination");
  CHECK(chosen(table, call(C::AllReduce, 4, 4092)) == "rabenseifner");
  CHECK(chosen(table, call(C::AllReduce, 4, 4096)) == "recursive_doubling");
  CHECK(chosen(table, call(C::AllReduce, 4, 65536)) == "ring");
  CHECK(chosen(table, call(C::AllReduce, 128, 1 << 20)) == "rabenseifner");  // built-in
  CHECK(chosen(table, call(C::Broadcast, 2, 8)) == "binomial");
  CHECK(chosen(table, call(C::Scatter, 2, 8)) == "binomial");
  CHECK(table.rows(C::Scatter)[0].origin == file.path + ":4");
  CHECK(table.rows(C::Barrier)[0].origin == "MPI_GDR_BARRIER_ALGO");
  CHECK(table.rows(C::Barrier)[1].origin == "MPI_GDR_SELECT");
  CHECK(to_text(parse_table(to_text(table.rows(C::Barrier)[0]), "t").at(0)) ==
        to_text(table.rows(C::Barrier)[0]));
  CHECK(table.rows(C::Broadcast)[0].origin == "Options.selection");
  // The algorithm forced for all calls may be native: it is used where the library is exact.
  const SelectionTable forced = load_selection(env_of({{"MPI_GDR_ALLREDUCE_ALGO", "native"}})).table;
  CHECK(chosen(forced, call(C::AllReduce, 4, 1 << 20), true) == "native");
  CHECK(chosen(forced, call(C::AllReduce, 4, 1 << 26), false) == "ring");
}

TEST(a_table_of_the_user_is_not_measured) {
  const File file("broadcast binomial\n");
  CHECK(Planner(env_of({})).adapts() && !Planner(env_of({{"MPI_GDR_ADAPT", "off"}})).adapts());
  CHECK(!Planner(env_of({{"MPI_GDR_TUNING", file.path}})).adapts());
  CHECK(!Planner(env_of({{"MPI_GDR_SELECT", "broadcast:binomial"}})).adapts());
  CHECK(!Planner(env_of({}), {"broadcast:binomial", ""}).adapts());
  // Other collectives still adapt; this one has no choice.
  CHECK(Planner(env_of({{"MPI_GDR_BROADCAST_ALGO", "binomial"}})).adapts());
}

TEST(sources_that_are_wrong) {
  CHECK_THROWS(load_selection(env_of({{"MPI_GDR_TUNING", "/nowhere/tuning.txt"}})), Error,
               "MPI_GDR_TUNING=/nowhere/tuning.txt cannot be read: No such file");
  CHECK_THROWS(load_selection(env_of({{"MPI_GDR_TUNING", "/tmp"}})), Error,
               "MPI_GDR_TUNING=/tmp cannot be read");
  const File file("barrier native\n\nbarrier flog\n");
  CHECK_THROWS(load_selection(env_of({{"MPI_GDR_TUNING", file.path}})), Error,
               (file.path + ":3: 'flog' is not").c_str());
  CHECK_THROWS(load_selection(env_of({{"MPI_GDR_SELECT", "barrier"}})), Error,
               "MPI_GDR_SELECT: in 'barrier': no ");
  CHECK_THROWS(load_selection(env_of({}), {"gahter:linear", ""}), Error,
               "Options.selection: in 'gahter:linear': ");
  CHECK_THROWS(load_selection(env_of({{"MPI_GDR_REDUCE_ALGO", "ring"}})), Error,
               "MPI_GDR_REDUCE_ALGO=ring is not an algorithm of reduce: expected one of binomial");
  const File empty("");
  CHECK(load_selection(env_of({{"MPI_GDR_TUNING", empty.path}})).table.rows(Collective::Barrier)[0].origin ==
        "built-in");
}

TEST(ranks_compare_what_chooses) {
  const File file("barrier native\n");
  const auto settings = [](std::vector<std::pair<std::string, std::string>> variables,
                           const char* rows = "") {
    return load_selection(env_of(std::move(variables)), {rows, ""}).settings;
  };
  const auto plain = settings({});
  CHECK(disagreement({plain}) == "");
  CHECK(disagreement({plain, plain, {}}) == "rank 2 has another release of mpi-gdr than rank 0");
  CHECK(disagreement({plain, plain, plain}) == "");
  CHECK(disagreement({plain, settings({{"MPI_GDR_LANES", "8"}}), plain}) ==
        "MPI_GDR_LANES is 4 on ranks 0, 2 and 8 on rank 1");
  CHECK(disagreement({plain, settings({{"MPI_GDR_DEBUG", "DETAIL"}})}) ==
        "MPI_GDR_DEBUG is not DETAIL on rank 0 and DETAIL on rank 1");
  CHECK(disagreement({plain, settings({{"MPI_GDR_DEBUG", "INFO"}})}) == "");
  CHECK(disagreement({plain, settings({{"MPI_GDR_CHUNK_BYTES", "262144"}})}) == "");
  CHECK(disagreement({settings({{"MPI_GDR_GATHER_ALGO", "linear"}}), plain,
                      settings({{"MPI_GDR_GATHER_ALGO", "native"}, {"MPI_GDR_CHUNK_BYTES", "1K"}})}) ==
        "MPI_GDR_CHUNK_BYTES is 256K on ranks 0, 1 and 1K on rank 2; "
        "MPI_GDR_GATHER_ALGO is linear on rank 0, not set on rank 1 and native on rank 2");
  // Rows are compared by meaning, not by spelling or path.
  CHECK(disagreement({settings({{"MPI_GDR_SELECT", "bcast:0-4k:chain"}}),
                      settings({{"MPI_GDR_SELECT", "broadcast:chain:0-4096"}})}) == "");
  CHECK(disagreement({settings({{"MPI_GDR_SELECT", "allreduce:leaders=1:two_level"}}),
                      settings({{"MPI_GDR_SELECT", "allreduce:two_level"}})}) != "");
  CHECK(disagreement({settings({}, "barrier:native"), plain}) ==
        "Options.selection is barrier:native on rank 0 and not set on rank 1");
  const File other("# comment\n barrier   native\n");
  const auto ours = settings({{"MPI_GDR_TUNING", file.path}});
  CHECK(disagreement({ours, settings({{"MPI_GDR_TUNING", other.path}})}) == "");
  std::ofstream(other.path) << "barrier flag\n";
  const std::string text = disagreement({ours, settings({{"MPI_GDR_TUNING", other.path}}), plain});
  CHECK(text.find("MPI_GDR_TUNING is " + file.path + " (1 row, digest ") == 0);
  CHECK_CONTAINS(text, ") on rank 0, " + other.path);
  CHECK_CONTAINS(text, " and not set on rank 2");
}

TEST(ranks_compare_every_variable_that_must_be_equal) {
  const File file("barrier native\n");
  const std::string texts[] = {file.path,        "2",      "off",  "exact",    "DETAIL",
                               "barrier:native", "native", "auto", "pairwise", "own"};
  const Env defaults = env_of({});
  for (const Env::Variable& variable : defaults.table()) {
    std::string found;
    for (const std::string& text : texts) try {  // most are invalid for this variable
        const Env other = env_of({{variable.name, text}});
        found += disagreement({load_selection(defaults).settings, load_selection(other).settings});
      } catch (const Error&) {
      }
    const bool compared = found.starts_with(variable.name + " is ") && found.ends_with(" on rank 1");
    CHECK(compared == (variable.ranks == Env::Ranks::Equal));
  }
}

UNIT_MAIN()
