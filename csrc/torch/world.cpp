#include "torch/world.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "bootstrap/host.hpp"
#include "bootstrap/shared_memory.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "device/host/isa.hpp"
#include "torch/flight.hpp"
#include "torch/member.hpp"
#include "torch/signals.hpp"
#include "torch/store.hpp"
#include "transport/mpi/runtime.hpp"

extern char** environ;

namespace mpigdr::torch_binding {
namespace {

std::atomic<bool> forked_child{false};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// A thread is inside the MPI library and stays there. What libraries do when a process ends (handlers,
// destructors) may wait for it, or pull the ground from under it.
void skip_other_exit_handlers() {
  ::on_exit(
      [](int status, void*) {
        unlink_mpich_shared_memory();
        ::_exit(status);
      },
      nullptr);
}

// Launchers and batch systems know a job by its status only.
void end_with_failure(const std::string& failure) {
  static std::string text;
  text = failure;
  ::on_exit(
      [](int status, void*) {
        if (status != 0) return;
        log_fatal("the program ends with status 0, but it has taken no notice of a failure (" + text +
                  "): ending with status " + std::to_string(kExitGroupFailed) +
                  ". Call destroy_process_group or abort after a failure that is no error of the job");
        std::fflush(nullptr);
        ::_exit(kExitGroupFailed);
      },
      nullptr);
}

void warn_of_unknown_variables() {
  for (const auto& [unknown, nearest] : Env::unknown_variables(environ))
    log(LogLevel::Warn, "INIT", unknown, " is not a variable of mpi-gdr; did you mean ", nearest, "?");
}

}  // namespace

World& World::get() {
  static World* const world = new World;
  return *world;
}

World::World() {
  // Only a flag: the child must not take a lock that a thread of the parent may have held.
  pthread_atfork(nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
}

void World::check_process() const {
  if (forked_child.load(std::memory_order_relaxed))
    fail(ErrorCode::Aborted,
         "this process was forked after init_process_group, and MPI does not survive a fork; "
         "use the group in the parent only (DataLoader workers need no process group)");
}

// torchrun shares one store among all attempts of an elastic job, and a process may create and destroy the
// default group several times over the same store: keys of one must never be seen by another.
std::string World::key_prefix() const {
  return "mpi-gdr/" + variable("TORCHELASTIC_RUN_ID") + "/" + variable("TORCHELASTIC_RESTART_COUNT") + "/" +
         std::to_string(generation_);
}

void World::begin_generation(c10::intrusive_ptr<c10d::Store> store) {
  // Over the connection that is there: the server of a TCPStore looks up each client's name, one after the
  // other, which takes seconds where no name server answers. No call of ours waits in the store for a peer.
  std::lock_guard lock(mutex_);
  store_ = signed_store(std::move(store));
  ++generation_;
  times_made_.clear();
}

void World::start_mpi(int rank, int size, std::chrono::milliseconds timeout, bool begins_generation) {
  mpi::RuntimeOptions options;
  {
    std::lock_guard lock(mutex_);
    options.store = store_;
    options.key = key_prefix();
  }
  set_log_rank(rank, size);
  host::selected_isa();  // a wrong MPI_GDR_SIMD is told before MPI starts
  const bool first = !mpi::initialized();
  options.rank = rank;
  options.size = size;
  options.bootstrap = Env::get().bootstrap;
  options.rendezvous_timeout = timeout;
  options.init_timeout = std::min<std::chrono::milliseconds>(timeout, std::chrono::minutes(5));
  options.poll = check_interrupt;
  mpi::initialize(options);
  if (first && rank == 0) warn_of_unknown_variables();  // most often they are the same on all
  if (!first && begins_generation) mpi::renumber(options);
  if (const auto log = flight()) log->set_rank(rank);
}

void World::initialize_from_launcher(int rank, int size, std::chrono::milliseconds timeout) {
  check_process();
  start_mpi(rank, size, timeout, false);
}

void World::start_engine(const std::vector<Member>& members, int rank, int size) {
  std::lock_guard lock(mutex_);
  if (engine_) return;
  std::vector<std::string> hosts, cpus;
  for (const Member& member : members) {
    hosts.push_back(member.host);
    cpus.push_back(member.cpus);
  }
  EngineOptions options;
  options.oversubscribed = oversubscribed(number_nodes(hosts), cpus);
  options.longest_nap = std::chrono::microseconds(Env::get().nap_us);
  // Rank 0 of the first group names the job.
  options.flight = make_flight_writer(members[0].job, rank, size);
  options.trace = trace_;
  options.explain = [this](const Group& group) { return liveness_.explain(group); };
  options.quiet = [this](const Group& group) { return liveness_.quiet(group); };
  engine_ = Engine::create(options);
  set_last_words([flight = options.flight, trace = trace_](const std::string& reason) -> std::string {
    std::string told;
    if (flight) told = flight->write_and_tell(reason, std::chrono::seconds(1));  // else turned off
    if (trace) trace->write(reason, std::chrono::milliseconds(500));             // the longer file: second
    return told;
  });
  if ((options.flight || trace_) && Env::get().flight_signal)
    flight_signal_ = std::make_unique<FlightSignal>(Env::get().flight_signal, options.flight, trace_);
  if (log_enabled(LogLevel::Info)) print_summary();
  const auto ranks_here = static_cast<int>(std::count(hosts.begin(), hosts.end(), host_identity()));
  if (const std::string problem =
          binding_problem(usable_cpus(), ranks_here, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
      !problem.empty())
    log(LogLevel::Warn, "BIND", problem);
  if (options.oversubscribed)
    log(LogLevel::Info, "INIT", "more ranks than cores on a node: waiting ranks give their core away");
}

void World::print_summary() const {
  const mpi::RuntimeInfo mpi = mpi::info();
  std::ostringstream settings;
  for (const Env::Variable& v : Env::get().table())
    if (v.from_environment) settings << ' ' << v.name << '=' << v.value;
  log(LogLevel::Info, "INIT", "mpi-gdr ", MPI_GDR_VERSION, " for torch ", MPI_GDR_TORCH_VERSION, "; ",
      mpi.mpi_version, " (", mpi.mpi_path, ", ", mpi.abi, ", MPI ", mpi.standard, ")");
  log(LogLevel::Info, "INIT", "started by ", mpi.initialized_by, ", bootstrap ", mpi.bootstrap,
      ", thread level ", mpi.thread_level, ", ", mpi.nodes, " node(s), rank ", mpi.rank_on_node, " of ",
      mpi.ranks_on_node, " on node ", mpi.node);
  log(LogLevel::Info, "INIT", "kernels: ", host::name(host::selected_isa()));
  log(LogLevel::Info, "INIT", "variables:", settings.str().empty() ? " none set" : settings.str());
}

std::shared_ptr<Trace> World::trace(int rank, int size) {
  std::lock_guard lock(mutex_);
  if (!trace_ && !engine_) trace_ = make_trace(rank, size);
  return trace_;
}

void World::write_trace(const char* reason) noexcept {
  std::shared_ptr<Trace> trace;
  {
    std::lock_guard lock(mutex_);
    trace = trace_;
  }
  if (!trace) return;
  const FileWriter::Result result = trace->write(reason, std::chrono::seconds(10));
  if (result.problem.empty()) return;
  try {
    log(LogLevel::Warn, "TRACE", "MPI_GDR_TRACE: ", result.problem);
  } catch (const std::bad_alloc&) {
    // The file tells, by its absence.
  }
}

Engine& World::engine() {
  std::lock_guard lock(mutex_);
  MPIGDR_CHECK(engine_ != nullptr);
  return *engine_;
}

std::shared_ptr<FlightWriter> World::flight() {
  std::lock_guard lock(mutex_);
  return engine_ ? engine_->flight() : nullptr;
}

void World::note_failure() { mpi::mark_failed(); }

void World::group_closed(const Group& group) {
  const bool last = open_groups_.fetch_sub(1, std::memory_order_relaxed) == 1;
  liveness_.closed(group);
  if (last) write_trace("the last process group was destroyed");
}

void World::finalize(const std::string& failure) noexcept {
  if (forked_child.load(std::memory_order_relaxed) || finalized_.exchange(true, std::memory_order_acq_rel))
    return;
  using std::chrono::milliseconds;
  const bool orderly = open_groups_.load(std::memory_order_relaxed) == 0;
  bool stuck = false;
  std::string unsettled;
  try {
    unsettled = liveness_.unsettled();
    if (!failure.empty()) mpi::mark_failed();
    Engine* engine;
    std::unique_ptr<FlightSignal> flight_signal;
    {
      std::lock_guard lock(mutex_);
      engine = engine_.get();
      flight_signal = std::move(flight_signal_);
    }
    const bool failed = mpi::failed();
    std::string why =
        orderly ? "it has destroyed its process groups" : "its program ended with open process groups";
    if (failed) why = "its program ended after a failure";
    if (!failure.empty()) why = "its program ended with " + failure;
    liveness_.end(why);
    // Those that wait for this rank shall not wait longer than they must.
    if (failed) liveness_.farewell(false, milliseconds(1500));
    if (engine && !engine->shutdown()) mpi::mark_failed();
    if (mpi::failed()) liveness_.farewell(false, milliseconds(1500));  // unless that was said before
    stuck = engine && engine->left_behind();
    write_trace("the process ends");
    flight_signal.reset();  // may wait for a log that is being written
  } catch (...) {
    mpi::mark_failed();
  }
  const auto start = Clock::now();
  bool told = false;
  const bool finalized = mpi::finalize(orderly, [&] {
    // Most ranks come within this time, and need no word from anyone.
    if (!told && Clock::now() - start > std::chrono::seconds(1)) {
      told = true;
      liveness_.farewell(true, milliseconds(500));
    }
    return liveness_.missing();
  });
  if (told && !finalized) liveness_.give_up(milliseconds(500));
  // Another library ends MPI: nobody was waited for.
  if (!told && !finalized && !mpi::failed()) liveness_.farewell(true, milliseconds(500));
  liveness_.linger();
  liveness_.stop(milliseconds(500));
  if (stuck) skip_other_exit_handlers();
  if (!unsettled.empty()) end_with_failure(unsettled);  // the later handler runs first
}

}  // namespace mpigdr::torch_binding
