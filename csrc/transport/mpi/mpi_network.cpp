#include "transport/mpi/mpi_network.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <thread>

#include "bootstrap/environment.hpp"
#include "bootstrap/host.hpp"
#include "bootstrap/pmi_server.hpp"
#include "bootstrap/process_id.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/shared_memory.hpp"
#include "bootstrap/signed_store.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/error.hpp"
#include "common/rank_list.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookEvery(100);
constexpr std::chrono::seconds kContainersStart(4);  // by then the others' processes are visible
constexpr std::chrono::seconds kGrace(2);  // a peer's watchdog fires first, so that its rank can be named

// Why an MPI that another library has initialised cannot be used, or "".
std::string explain_existing_mismatch(int expected_size) {
  if (mpi_is_finalized()) return "MPI was finalised in this process, and it cannot be started twice";
  int level = 0, size = 0;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_MULTIPLE)
    return std::string("MPI was initialised before init_process_group with thread level ") +
           thread_level_name(level) +
           ", and mpi-gdr needs 'multiple'. With mpi4py: set `mpi4py.rc.thread_level = \"multiple\"` before "
           "`from mpi4py import MPI`, or import it after init_process_group";
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (size != expected_size)
    return "MPI was initialised before init_process_group and has " + std::to_string(size) +
           " rank(s), but torch's world_size is " + std::to_string(expected_size) +
           ". Import mpi4py.MPI after init_process_group, or start all ranks with one MPI launcher";
  return "";
}

std::vector<Proposal> gather_proposals(const NetworkOptions& o, const Proposal& mine) {
  if (o.size == 1) return {mine};
  std::vector<Proposal> all;
  if (!o.store) {  // assumed: the launcher gave every rank what it gave this one
    all.assign(static_cast<std::size_t>(o.size), mine);
    for (int r = 0; r < o.size; ++r) {
      Proposal& its = all[static_cast<std::size_t>(r)];
      if (r != o.rank) its.process = {};
      if (mine.launcher && mine.launcher->rank == o.rank) its.launcher->rank = r;
    }
    return all;
  }
  const auto deadline = steady_clock::now() + o.rendezvous_timeout;
  for (const auto& text :
       rendezvous(*o.store, o.key + "/start", o.rank, o.size, serialise(mine), deadline, o.poll))
    all.push_back(parse_proposal(text));
  return all;
}

PmiServer& start_pmi_server(const NetworkOptions& o, const std::vector<Proposal>& all,
                            const std::vector<int>& nodes, Deadline deadline) {
  PmiServerOptions p;
  p.rank = o.rank;
  p.size = o.size;
  p.store = o.store;
  p.prefix = o.key + "/" + all[0].nonce;
  p.kvsname = "mpi_gdr_" + all[0].nonce;
  p.abort_key = p.prefix + "/abort";
  p.process_mapping = process_mapping(nodes);
  p.init_deadline = deadline - o.init_timeout / 10;  // before the watchdog's: names the missing ranks
  p.later_timeout = std::chrono::seconds(10);
  PmiServer& server = PmiServer::start(std::move(p));
  state().pmi = &server;
  ::setenv("PMI_RANK", std::to_string(o.rank).c_str(), 1);
  ::setenv("PMI_SIZE", std::to_string(o.size).c_str(), 1);
  return server;
}

// Throws on all ranks if one certainly cannot start, else warns. `here`: ranks on this host; 0: unknown.
void check_shared_memory(const NetworkOptions& o, const std::vector<int>& nodes,
                         const std::vector<Proposal>& all, std::size_t here) {
  std::vector<std::optional<std::uint64_t>> free;
  for (const Proposal& p : all) free.push_back(p.shared_memory);
  const std::string refusal = o.store || here == all.size()
                                  ? explain_shared_memory_shortage(nodes, free, all[0].mpi_version, !o.store)
                                  : "";
  if (!refusal.empty()) fail(ErrorCode::System, "MPI cannot start: ", refusal);
  const auto own = free[static_cast<std::size_t>(o.rank)];
  const std::string warning = own ? warning_of_shared_memory(*own, here, !o.store) : "";
  if (!warning.empty()) report(o.rank, warning);
}

// Whether the ranks certainly share all namespaces. Without a store a rank compares with its launcher.
bool share_namespaces(const NetworkOptions& o, const std::vector<Proposal>& all) {
  const std::string& own = all[static_cast<std::size_t>(o.rank)].namespaces;
  if (own.empty()) return false;
  if (!o.store && o.size > 1) return own == namespaces(std::to_string(launcher_pid(std::getenv("PMI_FD"))));
  return std::ranges::all_of(all, [&](const Proposal& p) { return p.namespaces == own; });
}

void start_mpi(const NetworkOptions& o, Bootstrap how, const std::vector<Proposal>& all,
               const std::vector<ProcessId>& processes, Deadline deadline) {
  State& s = state();
  std::vector<std::string> hosts;
  for (const Proposal& p : all) hosts.push_back(p.host);
  const std::vector<int> nodes = number_nodes(hosts);
  const char* const local_size = std::getenv("LOCAL_WORLD_SIZE");
  const int own_node = nodes[static_cast<std::size_t>(o.rank)];
  const std::size_t here = o.store
                               ? static_cast<std::size_t>(std::count(nodes.begin(), nodes.end(), own_node))
                               : (local_size ? std::strtoul(local_size, nullptr, 10) : 0);
  check_shared_memory(o, nodes, all, here);
  set_fabric_environment(Env::get().gpu_aware != Env::Choice::Off);
  std::vector<const char*> confined;
  if (here == all.size() && MpiNetwork::family() == MpiFamily::Mpich && share_namespaces(o, all))
    confined = set_one_host_environment();
  PmiServer* server = nullptr;
  if (how == Bootstrap::Launcher) {
    // A forked child that runs exit handlers must not report to the launcher that this rank is done.
    const char* const fd = std::getenv("PMI_FD");
    if (fd && std::getenv("SLURM_PROCID") && !std::getenv("MPI_LOCALNRANKS"))
      server = &PmiServer::start({.rank = o.rank, .launcher = std::atoi(fd)});
    else if (fd)
      shield_pmi_from_forks(std::atoi(fd));
  } else {
    scrub_launcher_environment();
    if (how == Bootstrap::Store) server = &start_pmi_server(o, all, nodes, deadline);
  }
  if (server) ::setenv("PMI_FD", std::to_string(server->client_fd()).c_str(), 1);

  auto at_deadline = [store = o.store, processes, rank = o.rank, key = o.key + "/up",
                      size = o.size]() -> std::string {
    unlink_mpich_shared_memory();
    if (!store) return "a single rank";
    std::string text = find_lost(processes, rank, true);
    if (!text.empty()) text += "; ";
    try {  // the process that hosts the store may have ended
      text += "ranks that have not finished MPI_Init: " + rank_list(absent_ranks(*store, key, size)) +
              ". If one of them has ended, its own output says why";
    } catch (const std::exception& e) {
      text += std::string("cannot read from the store which ranks have not finished MPI_Init: ") + e.what();
    }
    return text;
  };
  const bool hidden = !o.store && here > 1 && launcher_pid(std::getenv("PMI_FD")) == 0;
  auto lost = [processes, rank = o.rank, hidden, patience = steady_clock::now() + kContainersStart] {
    const std::string text = find_lost(processes, rank, false);
    return text.empty() && hidden && steady_clock::now() > patience ? explain_unshared_memory() : text;
  };
  int provided = MPI_THREAD_SINGLE, code = MPI_SUCCESS;
  {
    Watchdog guard("MPI_Init_thread", deadline, o.rank, at_deadline, lost);
    code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  }
  if (server) {
    server->init_finished();
    // Programs that this one starts are not part of the job.
    for (const char* variable : {"PMI_FD", "PMI_RANK", "PMI_SIZE"}) ::unsetenv(variable);
  }
  for (const char* variable : confined) ::unsetenv(variable);
  check(code, "MPI_Init_thread");
  s.started_by_us = true;
  s.under_launcher = how == Bootstrap::Launcher;
  s.bootstrap = name(how);
  if (how == Bootstrap::Launcher)
    s.bootstrap += " (" + all[static_cast<std::size_t>(o.rank)].launcher->name + ")";
}

std::string lost_or_none(const std::vector<ProcessId>& processes, int rank) {
  const std::string text = find_lost(processes, rank, true);
  return text.empty() ? "no process of this host has ended or is stopped" : text;
}

// Throws if one of these processes has ended; for loops that wait for the others.
std::function<void()> look_for_lost(const char* when, const NetworkOptions& o,
                                    const std::vector<ProcessId>& processes, int rank) {
  return [=, &o, &processes, next_look = steady_clock::now()]() mutable {
    if (steady_clock::now() < next_look) return;
    next_look = steady_clock::now() + kLookEvery;
    if (o.poll) o.poll();
    const std::string lost = find_lost(processes, rank, false);
    if (lost.empty()) return;
    network().mark_failed("a rank was lost");  // so that finalize() does not wait for it
    fail(ErrorCode::Remote, when, ": ", lost);
  };
}

// A missing rank may have ended, or be stopped, just after MPI_Init.
std::vector<std::string> rendezvous_after_init(const NetworkOptions& o, const std::string& blob,
                                               const std::vector<ProcessId>& processes, Deadline deadline) {
  const auto look = look_for_lost("after MPI_Init", o, processes, o.rank);
  // torch's store waits forever if the process that hosts it is stopped.
  Watchdog guard("the rendezvous after MPI_Init", deadline + kGrace, o.rank, [processes, rank = o.rank] {
    if (state().started_by_us) unlink_mpich_shared_memory();
    return lost_or_none(processes, rank);
  });
  try {
    return rendezvous(*o.store, o.key + "/up", o.rank, o.size, blob, deadline, look);
  } catch (const Error& e) {
    if (state().started_by_us) unlink_mpich_shared_memory();
    // The store fails with the process that hosts it, which may need a moment to disappear.
    if (e.code() == ErrorCode::System) std::this_thread::sleep_for(kLookEvery);
    const std::string lost = find_lost(processes, o.rank, e.code() == ErrorCode::Timeout);
    if (lost.empty() || e.code() == ErrorCode::Remote) throw;
    fail(e.code() == ErrorCode::Timeout ? ErrorCode::Timeout : ErrorCode::Remote, "after MPI_Init: ", lost,
         "; ", e.what());
  }
}

// All ranks get every rank's result, and raise the same error.
void verify_world(const NetworkOptions& o, const std::vector<ProcessId>& processes, Deadline deadline) {
  int level = 0, size = 0;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  std::vector<std::string> all = {pack({std::to_string(size), std::to_string(level)})};
  if (o.size > 1 && o.store) all = rendezvous_after_init(o, all[0], processes, deadline + kGrace);
  for (std::size_t r = 0; r < all.size(); ++r) {
    RecordReader record("a rank's record after MPI_Init", all[r]);
    const int its_size = record.number<int>("size"), its_level = record.number<int>("thread level");
    record.end();
    if (its_size != o.size)
      fail(ErrorCode::InvalidUsage, "MPI started with ", its_size, " rank(s) on rank ", r,
           ", but torch's world_size is ", o.size, " (bootstrap: ", state().bootstrap,
           ", library: ", library_version(),
           "). This library ignores the launch environment that it was given: start with `mpirun -n ", o.size,
           " python script.py` of the same MPI, or set MPI_GDR_BOOTSTRAP=",
           state().under_launcher ? "store" : "launcher");
    if (its_level < MPI_THREAD_MULTIPLE)
      fail(ErrorCode::InvalidUsage, "MPI gives thread level '", thread_level_name(its_level), "' on rank ", r,
           ", and mpi-gdr needs 'multiple'. Use an MPI that was built with it (", library_version(),
           "), or unset the variable that lowers it");
  }
}

void check_again(const NetworkOptions& o) {
  const State& s = state();
  if (s.pid != ::getpid())
    fail(ErrorCode::InvalidUsage,
         "this process was forked from one that uses MPI, and MPI does not survive a fork. Start ",
         "it with torch.multiprocessing.spawn (or the 'spawn' start method)");
  if (o.size != s.size)
    fail(ErrorCode::InvalidUsage, "MPI was started in this process for ", s.size,
         " rank(s) and cannot be started again for world_size=", o.size, "; use new processes");
}

}  // namespace

void MpiNetwork::start(const NetworkOptions& o) {
  State& s = state();
  if (o.size < 1 || o.rank < 0 || o.rank >= o.size)
    fail(ErrorCode::InvalidUsage, "rank=", o.rank, " is not in 0..", o.size - 1);
  if (s.ready.load(std::memory_order_acquire) || (s.pid && s.pid != ::getpid())) return check_again(o);

  Proposal mine = propose(family(), o.bootstrap);
  mine.process = own_process();
  mine.mpi_version = library_version();
  if (mpi_is_finalized() || mpi_is_initialized()) {
    mine.error = explain_existing_mismatch(o.size);
    mine.initialised = true;
  }
  std::vector<Proposal> all;
  try {
    all = gather_proposals(o, mine);
  } catch (const Error&) {
    if (mine.error.empty()) throw;
  }
  if (!mine.error.empty()) fail(ErrorCode::InvalidUsage, mine.error);
  const Bootstrap how = decide(family(), all);
  if (o.size > 1 && !o.store && how != Bootstrap::Launcher)
    fail(ErrorCode::InvalidUsage, "world_size=", o.size, " needs a store: ",
         mpi_gdr::explain_launcher_mismatch(family(), o.bootstrap, mine.mpi_version, o.size));

  s.pid = ::getpid();
  s.rank = o.rank;
  s.size = o.size;
  const Deadline deadline = steady_clock::now() + o.init_timeout;
  std::vector<ProcessId> processes;
  for (const Proposal& p : all) processes.push_back(p.process);
  if (!mine.initialised)
    start_mpi(o, how, all, processes, deadline);
  else if (!s.started_by_us)
    s.bootstrap = "taken over";
  if (o.size > 1) s.idle.begin();
  verify_world(o, processes, deadline);
  {
    Watchdog guard(
        "set-up of communicators after MPI_Init", deadline + kGrace, o.rank,
        [processes, rank = o.rank] { return lost_or_none(processes, rank); },
        [processes, rank = o.rank] { return find_lost(processes, rank, false); });
    find_members(o);
  }
  if (std::ranges::count(s.members->node_of_rank, 0) == o.size) s.idle.suspend_until_entry();
  s.finalize_timeout =
      s.under_launcher ? std::max(o.rendezvous_timeout, o.finalize_timeout) : o.finalize_timeout;
  s.ready.store(true, std::memory_order_release);
}

void MpiNetwork::renumber(const NetworkOptions& o) {
  State& s = state();
  check_again(o);
  if (o.size == 1 || !o.store) return;
  const auto deadline = steady_clock::now() + o.rendezvous_timeout;
  // Lost ranks are found by their processes, which stay the same when ranks are renumbered.
  const std::shared_ptr<const Membership> members = membership();
  const std::vector<std::string> before =
      rendezvous(*o.store, o.key + "/again", o.rank, o.size, std::to_string(s.rank), deadline,
                 look_for_lost("a new process group cannot be made", o, members->processes, s.rank));
  bool moved = false;
  for (std::size_t r = 0; r < before.size(); ++r) moved |= before[r] != std::to_string(r);
  if (!moved) return;
  const auto lost = [members, rank = s.rank] { return find_lost(members->processes, rank, false); };
  Watchdog guard("set-up of communicators for another order of ranks", steady_clock::now() + o.init_timeout,
                 o.rank, {}, lost);
  s.rank = o.rank;
  find_members(o);
}

MPI_Comm base_communicator() {
  if (!network().started()) fail(ErrorCode::InvalidUsage, "MPI is not started yet; call start() first");
  if (state().pid != ::getpid())
    fail(ErrorCode::InvalidUsage,
         "this process was forked from one that uses MPI, and MPI does not survive a fork");
  return state().base;
}

}  // namespace mpi_gdr::mpi
