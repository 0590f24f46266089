// Ranks for the tests of bootstrap and transport/mpi, started by run.sh, one per process:
//   driver SCENARIO STORE_DIR RANK SIZE
// Exits with 0 if the rank did what its scenario expects. Scenarios that fail on purpose say so below.
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "bootstrap/rendezvous.hpp"
#include "checks.hpp"
#include "common/env.hpp"
#include "file_store.hpp"
#include "transport/load.hpp"

using namespace checks;
using namespace std::chrono_literals;

namespace {

std::string store_dir;

void meet(const std::string& key, int rank = my_rank, int size = my_size) {
  FileStore store(store_dir);
  rendezvous(store, key, rank, size, "", std::chrono::steady_clock::now() + 30s);
}

void start(NetworkOptions o = {}, std::shared_ptr<FileStore> store = nullptr) {
  o.rank = my_rank;
  o.size = my_size;
  o.store = store ? store : std::make_shared<FileStore>(store_dir);
  o.key = "run0";
  o.bootstrap = Env::get().bootstrap;
  network().start(o);
}

// Returns the sum over the ranks of rank + 1, if all ranks finalized cleanly.
std::optional<std::uint64_t> finalize() {
  std::optional<std::uint64_t> sum = my_rank + 1;
  network().finalize(true, sum, {});
  return sum;
}

std::unique_ptr<Transport> world(int tag = 1, bool accelerator = true) {
  std::vector<int> ranks(my_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return network().make_group({ranks, tag, accelerator});
}

// Overlapping groups, made repeatedly by two threads in opposite orders on odd and even ranks.
void opposite_orders() {
  for (int round = 0; round < 5; ++round) {
    std::vector<int> all(my_size), tail;
    std::iota(all.begin(), all.end(), 0);
    for (int r = my_size - 1; r >= 1; --r) tail.push_back(r);  // reversed order
    auto use = [round](const std::vector<int>& ranks, int tag) {
      auto t = network().make_group({ranks, tag, false});
      REQUIRE(t->size() == static_cast<int>(ranks.size()) && ranks[t->rank()] == my_rank);
      std::int64_t sum = my_rank + round, expected = 0;
      for (int r : ranks) expected += r + round;
      wait(*t, t->istart_native(Channel::Collective,
                                {Collective::AllReduce, &sum, &sum, 1, DataType::Int64, ReduceOp::Sum, 0}));
      REQUIRE(sum == expected);
      t->close();
    };
    auto first = [&] { use(all, 100 + 2 * round); };
    auto second = [&] {
      if (my_rank >= 1) use(tail, 101 + 2 * round);
    };
    std::thread a(my_rank % 2 ? std::function<void()>(first) : second);
    std::thread b(my_rank % 2 ? std::function<void()>(second) : first);
    a.join();
    b.join();
  }
}

bool is_finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

void basic() {
  const NetworkInfo early = network().info();
  REQUIRE(early.rank == -1 && early.thread_level.empty() && !early.version.empty() && !early.abi.empty());
  REQUIRE(contains(early.path, "libmpi"));
  start();
  start();  // a second process group: only checks
  const NetworkInfo i = network().info();
  REQUIRE(network().membership()->rank == my_rank && network().membership()->size() == my_size &&
          i.thread_level == "multiple");
  const int nodes =
      std::getenv("NODES") ? std::atoi(std::getenv("NODES")) : 1;  // of equal size, in rank order
  REQUIRE(i.nodes == nodes && i.ranks_on_node == my_size / nodes);
  REQUIRE(i.node == my_rank / i.ranks_on_node && i.rank_on_node == my_rank % i.ranks_on_node);
  REQUIRE(i.initialized_by == "mpi-gdr" && std::getenv("IBV_FORK_SAFE"));
  const char* expected = std::getenv("EXPECT_BOOTSTRAP");
  REQUIRE(!expected || i.bootstrap.rfind(expected, 0) == 0);
  if (expected && std::strcmp(expected, "store") == 0)
    REQUIRE(!std::getenv("PMI_RANK") && !std::getenv("PMI_FD"));
  const bool aware = network().gpu_aware();
  ::setenv("MVP_ENABLE_GPU", "1", 1);  // MVAPICH 4's default, even without CUDA
  REQUIRE(network().gpu_aware() == aware);
  auto t = world();
  point_to_point(*t);
  natives(*t);
  MPI_Comm lent = MPI_Comm_f2c(network().handle(*t));
  int lent_size = 0, sum = 1;
  MPI_Comm_size(lent, &lent_size);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, lent);
  REQUIRE(lent_size == my_size && sum == my_size);
  opposite_orders();
  t->close();
  REQUIRE(contains(message_of([&] { world(40000); }), "40000"));
  REQUIRE(contains(message_of([&] { network().make_group({{my_rank, my_rank}, 3, false}); }), "distinct"));
  auto last = world(2, false);
  wait(*last, last->istart_native(Channel::PointToPoint, {Collective::Barrier}));
  if (my_rank == 0 && std::getenv("LOSE_STORE")) std::filesystem::remove_all(store_dir);
  const auto total = finalize();
  REQUIRE(total && *total == static_cast<std::uint64_t>(my_size) * (my_size + 1) / 2);
  REQUIRE(is_finalized());
}

// torch's ranks are in reverse of the launcher's order.
void reordered() {
  my_rank = my_size - 1 - my_rank;
  start();
  auto t = world();
  REQUIRE(t->rank() == my_rank && network().info().bootstrap.rfind("launcher", 0) == 0);
  point_to_point(*t);
  t->close();
  finalize();
}

// MPI was initialised by the program: used and left alone with LEVEL=multiple, else refused.
void existing() {
  const bool multiple = std::strcmp(std::getenv("LEVEL"), "multiple") == 0;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
  int world_size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (!multiple) {
    const std::string text = message_of([] { start(); });
    REQUIRE(contains(text, "mpi4py.rc.thread_level") && contains(text, "funneled"));
  } else if (world_size != my_size) {
    REQUIRE(contains(message_of([] { start(); }), "world_size is " + std::to_string(my_size)));
  } else {
    start();
    REQUIRE(network().info().bootstrap == "taken over");
    auto t = world();
    point_to_point(*t);
    t->close();
    finalize();
    REQUIRE(!is_finalized());
  }
  MPI_Finalize();
}

// The last rank never arrives.
void missing() {
  NetworkOptions o;
  o.rendezvous_timeout = 1s;
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = message_of([&] { start(o); });
  REQUIRE(contains(text, "rank(s) " + std::to_string(my_size - 1) + " of"));
  REQUIRE(contains(text, std::string(name(ErrorCode::Timeout)) + "|"));
  REQUIRE(std::chrono::steady_clock::now() - begin < 20s);
  int flag = 1;
  MPI_Initialized(&flag);
  REQUIRE(!flag);
}

// Only one rank cannot start: all get the reason at once, long before the deadline.
void disagree() {
  setenv("MPI_GDR_BOOTSTRAP", my_rank == 0 ? "store" : "auto", 1);
  REQUIRE(contains(message_of([] { start(); }), "must be the same on all ranks"));
}

// The last rank dies between the rendezvous and MPI_Init (exit code 9); the others must end with 124.
void dies_in_init() {
  NetworkOptions o;
  o.init_timeout = 3s;
  start(o, std::make_shared<FileStore>(store_dir, [](const std::string& key) {
          if (my_rank == my_size - 1 && key == "run0/start/all") _exit(9);
        }));
  REQUIRE(!"MPI_Init returned without the dead rank");
}

// MPI_Abort ends the caller with its code (here 42) even without a launcher. The peer exits unfinalised.
void aborts() {
  start();
  meet("started");
  if (my_rank == 0) MPI_Abort(MPI_COMM_WORLD, 42);
  network().mark_failed("as a test");
  finalize();
  REQUIRE(!is_finalized());
}

// The last rank is killed; the survivors abandon their receive, free nothing, and exit normally.
void killed() {
  start();
  auto t = world();
  meet("started");
  if (my_rank == my_size - 1) raise(SIGKILL);
  int value = 0;
  Request r = t->irecv(Channel::Collective, &value, sizeof value, my_size - 1, 3);
  for (int i = 0; i < 1000; ++i) REQUIRE(!t->test(r));
  t->abandon(r);
  REQUIRE(t->test(r));
  t->close();
  finalize();
  REQUIRE(!is_finalized());
}

// The last rank exits cleanly but without finalize(): the others skip MPI_Finalize at their deadline.
void leaves_early() {
  NetworkOptions o;
  o.finalize_timeout = 1s;
  o.rendezvous_timeout = 30s;
  start(o);
  meet("started");
  if (my_rank == my_size - 1) return;
  finalize();
  REQUIRE(!is_finalized());
}

// A forked child's exit handlers, before and after MPI_Finalize, have no effect on the parent.
void forks() {
  start();
  auto t = world();
  auto fork_and_exit = [] {
    const pid_t child = fork();
    if (child == 0) {
      finalize();
      std::exit(contains(message_of([] { start(); }), "fork") ? 0 : 71);
    }
    int status = -1;
    waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  };
  fork_and_exit();
  point_to_point(*t);
  t->close();
  finalize();
  fork_and_exit();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 64;
  // "env": from the launcher of MPICH or Open MPI.
  auto number = [](const char* text, const char* pmi, const char* ompi) {
    if (std::strcmp(text, "env") != 0) return std::atoi(text);
    const char* value = std::getenv(std::getenv(ompi) ? ompi : pmi);
    return value ? std::atoi(value) : -1;
  };
  store_dir = argv[2];
  my_rank = number(argv[3], "PMI_RANK", "OMPI_COMM_WORLD_RANK");
  my_size = number(argv[4], "PMI_SIZE", "OMPI_COMM_WORLD_SIZE");
  const std::pair<const char*, void (*)()> scenarios[] = {
      {"basic", basic},     {"reordered", reordered}, {"existing", existing},
      {"missing", missing}, {"disagree", disagree},   {"dies_in_init", dies_in_init},
      {"aborts", aborts},   {"killed", killed},       {"leaves_early", leaves_early},
      {"forks", forks}};
  Dl_info mpi{};
  if (!::dladdr(reinterpret_cast<void*>(&MPI_Init), &mpi)) return 65;
  for (const auto& [label, body] : scenarios) {
    if (std::strcmp(label, argv[1]) != 0) continue;
    try {
      load_network(mpi.dli_fname);
      body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d: %s\n", my_rank, e.what());
      return 72;
    }
    return 0;
  }
  return 64;
}
