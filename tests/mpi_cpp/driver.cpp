// Ranks for the tests of bootstrap and transport/mpi; run.sh starts them. One process is one rank:
//   driver SCENARIO STORE_DIR RANK SIZE
// Exit code 0: what the scenario expects of this rank holds. Scenarios that end in a failure on purpose say
// so below.
#include <mpi.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "common/error.hpp"
#include "file_store.hpp"
#include "transport/mpi/mpi_transport.hpp"
#include "transport/mpi/runtime.hpp"

using namespace mpigdr;
using namespace std::chrono_literals;

namespace {

#define REQUIRE(condition)                                                                    \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "rank %d, line %d: %s is false\n", my_rank, __LINE__, #condition); \
      std::_Exit(70);                                                                         \
    }                                                                                         \
  } while (0)

int my_rank, my_size;
std::string store_dir;

void wait(Transport& t, Request r, RecvStatus* status = nullptr) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!t.test(r, status)) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
}

void meet(const std::string& key, int rank = my_rank, int size = my_size) {
  FileStore store(store_dir);
  rendezvous(store, key, rank, size, "", std::chrono::steady_clock::now() + 30s);
}

void start(mpi::RuntimeOptions o = {}, FileStore* store = nullptr) {
  FileStore own(store_dir);
  o.rank = my_rank;
  o.size = my_size;
  o.store = store ? store : &own;
  o.key = "run0";
  if (const char* mode = std::getenv("MPI_GDR_BOOTSTRAP")) o.bootstrap = parse_bootstrap_request(mode);
  mpi::initialize(o);
}

std::unique_ptr<mpi::GroupTransport> world(int tag = 1, bool accelerator = true) {
  std::vector<int> ranks(my_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return mpi::make_group(ranks, tag, accelerator);
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(name(e.code())) + "|" + e.what();
  }
  return "";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// --- scenarios
// -------------------------------------------------------------------------------------------------

void point_to_point(Transport& t) {
  const int next = (my_rank + 1) % my_size, before = (my_rank + my_size - 1) % my_size;
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    std::vector<unsigned char> out(bytes, static_cast<unsigned char>(my_rank + 1)), in(bytes, 0xff),
        any(bytes, 0xff);
    // The same tag on three channels: they must not match each other.
    Request r1 = t.irecv(Channel::Collective, in.data(), bytes, before, 7);
    Request r2 = t.irecv(Channel::PointToPoint, any.data(), bytes, kAnySource, 7);
    Request s2 = t.isend(Channel::PointToPoint, out.data(), bytes, next, 7, SendMode::Synchronous);
    Request s1 = t.isend(Channel::Collective, out.data(), bytes, next, 7);
    RecvStatus status;
    wait(t, r2, &status);
    REQUIRE(status.source == before && status.tag == 7 && status.bytes == bytes);
    wait(t, r1);
    wait(t, s1);
    wait(t, s2);
    const std::vector<unsigned char> expected(bytes, static_cast<unsigned char>(before + 1));
    REQUIRE(in == expected && any == expected);
  }
  char byte = 0;
  REQUIRE(
      contains(message_of([&] { t.isend(Channel::PointToPoint, &byte, 1, 0, t.max_tag() + 1); }), "tag="));
  REQUIRE(contains(message_of([&] { t.isend(Channel::PointToPoint, &byte, 1, my_size, 0); }), "peer="));
}

template <typename T>
void reductions(Transport& t, DataType dtype, T one) {
  const std::uint64_t n = 1003;
  for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max}) {
    REQUIRE(t.has_native(Collective::AllReduce, dtype, op, n));
    auto value = [&](int r, std::uint64_t i) {
      return dtype == DataType::Bool ? T((r + i) % 2) : T(one + T((r + i) % 3));
    };
    auto expected = [&](std::uint64_t i) {
      T x = value(0, i);
      for (int r = 1; r < my_size; ++r) {
        const T y = value(r, i);
        const bool logical = dtype == DataType::Bool;
        if (op == ReduceOp::Sum) x = logical ? T(x || y) : T(x + y);
        if (op == ReduceOp::Product) x = T(x * y);
        if (op == ReduceOp::Min) x = std::min(x, y);
        if (op == ReduceOp::Max) x = std::max(x, y);
      }
      return x;
    };
    std::vector<T> in(n * my_size), out(n);
    for (std::uint64_t i = 0; i < in.size(); ++i) in[i] = value(my_rank, i);
    // Out of place, in place, to one root.
    wait(t, t.istart_native(Channel::Collective,
                            {Collective::AllReduce, in.data(), out.data(), n, dtype, op, 0}));
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(out[i] == expected(i));
    out.assign(in.begin(), in.begin() + n);
    wait(t, t.istart_native(Channel::Accelerator,
                            {Collective::AllReduce, out.data(), out.data(), n, dtype, op, 0}));
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(out[i] == expected(i));
    const int root = my_size - 1;
    std::vector<T> kept = in;
    wait(t,
         t.istart_native(Channel::Collective, {Collective::Reduce, in.data(),
                                               my_rank == root ? in.data() : nullptr, n, dtype, op, root}));
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(in[i] == (my_rank == root ? expected(i) : kept[i]));
    in = kept;
    // reduce_scatter apart, then with the result inside the input.
    wait(t, t.istart_native(Channel::Collective,
                            {Collective::ReduceScatter, in.data(), out.data(), n, dtype, op, 0}));
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(out[i] == expected(my_rank * n + i));
    T* inside = in.data() + my_rank * n;
    wait(t, t.istart_native(Channel::Collective,
                            {Collective::ReduceScatter, in.data(), inside, n, dtype, op, 0}));
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(inside[i] == expected(my_rank * n + i));
  }
}

void natives(Transport& t) {
  reductions<double>(t, DataType::Float64, 1.5);
  reductions<float>(t, DataType::Float32, 0.25f);
  reductions<std::int64_t>(t, DataType::Int64, -2);
  reductions<std::int32_t>(t, DataType::Int32, -1);
  reductions<std::int16_t>(t, DataType::Int16, 1);
  reductions<std::int8_t>(t, DataType::Int8, -1);
  reductions<std::uint8_t>(t, DataType::UInt8, 1);
  reductions<std::uint8_t>(t, DataType::Bool, 0);
  const std::uint64_t large = std::uint64_t{1} << 31;
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::BFloat16, ReduceOp::Sum, 1));
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::Float32, ReduceOp::Avg, 1));
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::Float32, ReduceOp::Sum, large));
  REQUIRE(!t.has_native(Collective::Broadcast, DataType::Float32, ReduceOp::Sum, large / 4));
  REQUIRE(t.has_native(Collective::Broadcast, DataType::BFloat16, ReduceOp::Sum, large / 4));
  REQUIRE(!t.has_native(Collective::AllToAll, DataType::UInt8, ReduceOp::Sum, 0));

  const std::uint64_t n = 777;
  std::vector<std::int16_t> data(n, my_rank == 0 ? 42 : 0), all(n * my_size);
  wait(t, t.istart_native(Channel::Collective,
                          {Collective::Broadcast, nullptr, data.data(), n, DataType::BFloat16}));
  REQUIRE(data == std::vector<std::int16_t>(n, 42));
  for (bool in_place : {false, true}) {
    std::int16_t* mine = in_place ? all.data() + my_rank * n : data.data();
    std::fill(mine, mine + n, static_cast<std::int16_t>(my_rank + 1));
    wait(t, t.istart_native(Channel::Collective,
                            {Collective::AllGather, mine, all.data(), n, DataType::BFloat16}));
    for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == static_cast<std::int16_t>(i / n + 1));
  }
  wait(t, t.istart_native(Channel::Collective, {Collective::Barrier}));
  wait(t,
       t.istart_native(Channel::Collective, {Collective::AllReduce, nullptr, nullptr, 0, DataType::Float32}));
}

// Overlapping groups, made by two threads in opposite orders on odd and even ranks, several times over.
void opposite_orders() {
  for (int round = 0; round < 5; ++round) {
    std::vector<int> all(my_size), tail;
    std::iota(all.begin(), all.end(), 0);
    for (int r = my_size - 1; r >= 1; --r) tail.push_back(r);  // also: an order of its own
    auto use = [round](const std::vector<int>& ranks, int tag) {
      auto t = mpi::make_group(ranks, tag, false);
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

void basic() {
  const mpi::RuntimeInfo early = mpi::info();
  REQUIRE(early.rank == -1 && early.thread_level.empty() && !early.library.empty() && !early.abi.empty());
  REQUIRE(contains(early.library_path, "libmpi"));
  start();
  start();  // a second process group: checks only
  const mpi::RuntimeInfo i = mpi::info();
  REQUIRE(mpi::rank() == my_rank && mpi::size() == my_size && i.thread_level == "multiple");
  const int nodes =
      std::getenv("NODES") ? std::atoi(std::getenv("NODES")) : 1;  // of equal size, in rank order
  REQUIRE(i.nodes == nodes && i.ranks_on_node == my_size / nodes);
  REQUIRE(i.node == my_rank / i.ranks_on_node && i.rank_on_node == my_rank % i.ranks_on_node);
  REQUIRE(i.initialized_by == "mpi-gdr" && std::getenv("IBV_FORK_SAFE"));
  const char* expected = std::getenv("EXPECT_BOOTSTRAP");
  REQUIRE(!expected || i.bootstrap.rfind(expected, 0) == 0);
  if (expected && std::strcmp(expected, "store") == 0)
    REQUIRE(!std::getenv("PMI_RANK") && !std::getenv("PMI_FD"));
  auto t = world();
  point_to_point(*t);
  natives(*t);
  MPI_Comm lent = MPI_Comm_f2c(t->mpi_handle());
  int lent_size = 0, sum = 1;
  MPI_Comm_size(lent, &lent_size);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, lent);
  REQUIRE(lent_size == my_size && sum == my_size);
  opposite_orders();
  t->close();
  REQUIRE(contains(message_of([&] { world(40000); }), "40000"));
  REQUIRE(contains(message_of([&] { mpi::make_group({my_rank, my_rank}, 3, false); }), "distinct"));
  auto last = world(2, false);
  wait(*last, last->istart_native(Channel::PointToPoint, {Collective::Barrier}));
  if (my_rank == 0 && std::getenv("LOSE_STORE")) std::filesystem::remove_all(store_dir);
  mpi::finalize();
  REQUIRE(mpi::info().finalized);
}

// The launcher's order is not torch's: torch's rank is the mirror image.
void reordered() {
  my_rank = my_size - 1 - my_rank;
  start();
  auto t = world();
  REQUIRE(t->rank() == my_rank && mpi::info().bootstrap.rfind("launcher", 0) == 0);
  point_to_point(*t);
  t->close();
  mpi::finalize();
}

// MPI was initialised by somebody else: with LEVEL=multiple it is taken over and left alone, else refused.
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
    REQUIRE(mpi::info().bootstrap == "taken over");
    auto t = world();
    point_to_point(*t);
    t->close();
    mpi::finalize();
    REQUIRE(!mpi::info().finalized);
  }
  MPI_Finalize();
}

// The last rank never comes.
void missing() {
  mpi::RuntimeOptions o;
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

// Only one rank cannot start: all are told at once why. (Deadline far away.)
void disagree() {
  setenv("MPI_GDR_BOOTSTRAP", my_rank == 0 ? "store" : "auto", 1);
  REQUIRE(contains(message_of([] { start(); }), "must be the same on all ranks"));
}

// The last rank dies between the rendezvous and MPI_Init (exit code 9); the others must end with 124.
void dies_in_init() {
  mpi::RuntimeOptions o;
  o.init_timeout = 3s;
  FileStore store(store_dir, [] {
    if (my_rank == my_size - 1) _exit(9);
  });
  start(o, &store);
  REQUIRE(!"MPI_Init returned without the dead rank");
}

// MPI_Abort ends the caller with its code (here 42), although there is no launcher to do it. The peer leaves
// unfinalised.
void aborts() {
  start();
  meet("started");
  if (my_rank == 0) MPI_Abort(MPI_COMM_WORLD, 42);
  mpi::mark_failed();
  mpi::finalize();
  REQUIRE(!mpi::info().finalized);
}

// The last rank is killed; the survivors give up their receive, free nothing, and end normally.
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
  mpi::finalize();
  REQUIRE(!mpi::info().finalized);
}

// Clean, but the last rank leaves without finalize(): the others skip MPI_Finalize at their deadline.
void leaves_early() {
  mpi::RuntimeOptions o;
  o.finalize_timeout = 1s;
  o.rendezvous_timeout = 30s;
  start(o);
  meet("started");
  if (my_rank == my_size - 1) return;
  mpi::finalize();
  REQUIRE(!mpi::info().finalized);
}

// A forked child runs exit handlers, before and after MPI_Finalize, and harms nobody.
void forks() {
  start();
  auto t = world();
  auto fork_and_exit = [] {
    const pid_t child = fork();
    if (child == 0) {
      mpi::finalize();
      std::exit(contains(message_of([] { start(); }), "fork") ? 0 : 71);
    }
    int status = -1;
    waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  };
  fork_and_exit();
  point_to_point(*t);
  t->close();
  mpi::finalize();
  fork_and_exit();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 64;
  // "env": from MPICH's launcher or Open MPI's.
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
  for (const auto& [label, body] : scenarios) {
    if (std::strcmp(label, argv[1]) != 0) continue;
    try {
      body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d: %s\n", my_rank, e.what());
      return 72;
    }
    return 0;
  }
  return 64;
}
