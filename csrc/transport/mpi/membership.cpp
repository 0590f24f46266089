// Exchanges the processes of the job over MPI, since a launcher may start it before there is a store.
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "bootstrap/host.hpp"
#include "bootstrap/shared_memory.hpp"
#include "bootstrap/signed_store.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/memory_file.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

void exchange_processes(Membership& members, std::shared_ptr<Board> board) {
  struct Record {
    char host[64];
    std::uint64_t domain, started;
    std::int64_t pid;
    Board::Ticket board;
  };
  static_assert(std::is_trivially_copyable_v<Record>);
  const State& s = state();
  const ProcessId own = own_process();
  Record mine{};
  own.host.copy(mine.host, sizeof mine.host - 1);
  mine.domain = own.domain;
  mine.started = own.started;
  mine.pid = own.pid;
  try {
    if (!board) board = std::make_shared<Board>();
    mine.board = board->ticket();
  } catch (const Error& error) {  // other ranks must not hang in MPI_Allgather
    report(s.rank, std::string("cannot notify the ranks of this host of failures: ") + error.what());
  }
  members.boards = std::make_shared<Boards>();
  members.boards->own = std::move(board);
  std::vector<Record> all(static_cast<std::size_t>(s.size));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, s.base),
        "MPI_Allgather");
  for (Record& r : all) {
    r.host[sizeof r.host - 1] = '\0';
    members.processes.push_back({r.host, r.domain, r.pid, r.started});
    const bool here = own.domain != 0 && r.domain == own.domain && r.pid != own.pid;
    members.boards->peers.push_back(here ? BoardReader::open(r.board) : nullptr);
    if (here && !members.boards->peers.back())
      report(s.rank, "cannot read the board of " +
                         describe(static_cast<int>(members.processes.size()) - 1, members.processes.back()) +
                         ": failures that this rank reports are noticed only at deadlines");
  }
}

// Only the ranks of the job have these bytes, which from now on sign values in the store.
void begin_session() {
  const State& s = state();
  std::uint64_t random[4];
  if (s.rank == 0) std::generate(std::begin(random), std::end(random), draw_nonce);
  check(MPI_Bcast(random, sizeof random, MPI_BYTE, 0, s.base), "MPI_Bcast");
  Signer::of_launch().begin_session({reinterpret_cast<const char*>(random), sizeof random});
}

}  // namespace

void find_members(const NetworkOptions& o) {
  State& s = state();
  if (s.base != MPI_COMM_NULL) check(MPI_Comm_free(&s.base), "MPI_Comm_free");
  // Ordered by torch's rank, not the launcher's.
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split(MPI_COMM_WORLD, 0, o.rank, &s.base), "MPI_Comm_split");
  check(MPI_Comm_set_errhandler(s.base, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_name(s.base, "mpi-gdr base"), "MPI_Comm_set_name");
  check(MPI_Comm_rank(s.base, &s.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(s.base, &s.size), "MPI_Comm_size");
  if (s.rank != o.rank)
    fail(ErrorCode::InvalidUsage, "torch's rank ", o.rank, " is rank ", s.rank,
         " after sorting by torch's ranks: two processes were given the same rank");

  check(MPI_Comm_split_type(s.base, MPI_COMM_TYPE_SHARED, o.rank, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  if (!s.members) agree_on_kernel_copies(node);  // before the first long message
  int leader = s.rank, rank_on_node = 0;
  check(MPI_Comm_rank(node, &rank_on_node), "MPI_Comm_rank");
  check(MPI_Bcast(&leader, 1, MPI_INT, 0, node), "MPI_Bcast");
  std::vector<int> leaders(static_cast<std::size_t>(s.size));
  check(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, s.base), "MPI_Allgather");
  check(MPI_Comm_free(&node), "MPI_Comm_free");
  std::vector<std::string> names;
  for (int l : leaders) names.push_back(std::to_string(l));
  const auto members = std::make_shared<Membership>();
  members->rank = s.rank;
  members->node_of_rank = number_nodes(names);
  if (const int each = Env::get().ranks_per_node; each > 0)
    for (int r = 0; r < s.size; ++r) members->node_of_rank[static_cast<std::size_t>(r)] = r / each;
  // The board stays: readers of the previous generation may still use it.
  exchange_processes(*members, s.members ? s.members->boards->own : nullptr);
  begin_session();
  {
    const std::lock_guard lock(s.members_mutex);
    s.members = members;
  }
  // After the Allgather all ranks have attached.
  if (s.started_by_us && rank_on_node == 0) unlink_mpich_shared_memory();
}

void MpiNetwork::broadcast(std::string& text, int root, std::chrono::milliseconds timeout) {
  MPI_Comm comm = base_communicator();
  if (root < 0 || root >= size())
    fail(ErrorCode::InvalidUsage, "broadcast_bytes: root=", root, " is not a rank: expected 0..", size() - 1);
  if (text.size() > INT_MAX)
    fail(ErrorCode::InvalidUsage, "broadcast_bytes: ", text.size(), " bytes, expected at most ", INT_MAX);
  Watchdog guard("a broadcast of the set-up", std::chrono::steady_clock::now() + timeout, rank());
  int length = static_cast<int>(text.size());
  check(MPI_Bcast(&length, 1, MPI_INT, root, comm), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(length));
  check(MPI_Bcast(text.data(), length, MPI_BYTE, root, comm), "MPI_Bcast");
}

}  // namespace mpi_gdr::mpi
