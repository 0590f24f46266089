#include "job/job.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "bootstrap/host.hpp"
#include "bootstrap/shared_memory.hpp"
#include "bootstrap/signed_store.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "device/host/isa.hpp"
#include "diagnostics/call_check.hpp"
#include "job/records.hpp"

extern char** environ;

namespace mpi_gdr {
namespace {

std::atomic<bool> forked_child{false};

// For a thread stuck in MPI: other exit handlers may wait for it or destroy state that it still uses.
void skip_other_exit_handlers() {
  ::on_exit(
      [](int status, void*) {
        unlink_mpich_shared_memory();
        ::_exit(status);
      },
      nullptr);
}

// Launchers and batch systems only see a job's status.
void end_with_failure(const std::string& failure) {
  static std::string text;
  text = failure;
  ::on_exit(
      [](int status, void*) {
        if (status != 0) return;
        log_fatal("the program ends with status 0, but " + text + ": ending with status " +
                  std::to_string(kExitGroupFailed));
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

Job::Job(Network& network, JobOptions options)
    : network_(network), options_(std::move(options)), liveness_(network) {
  // Only sets a flag: the child must not take a lock that a thread of the parent may have held.
  pthread_atfork(nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
}

Job::~Job() { liveness_.stop(std::chrono::seconds(1)); }

void Job::check_process() const {
  if (forked_child.load(std::memory_order_relaxed))
    fail(ErrorCode::Aborted,
         "this process was forked after init_process_group, and MPI does not survive a fork; "
         "use the group in the parent only (DataLoader workers need no process group)");
}

// One store may serve several attempts of a job and several default groups: their keys must not collide.
std::string Job::key_prefix() const {
  return "mpi-gdr/" + variable("TORCHELASTIC_RUN_ID") + "/" + variable("TORCHELASTIC_RESTART_COUNT") + "/" +
         std::to_string(generation_);
}

std::unique_lock<std::mutex> Job::lock_start(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::unique_lock lock(starting_, std::try_to_lock);
  while (!lock.owns_lock()) {
    if (options_.poll) options_.poll();
    if (Clock::now() > deadline)
      fail(ErrorCode::Timeout, "another thread of this process has not finished starting the job within ",
           std::chrono::duration<double>(timeout).count(), " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    lock.try_lock();
  }
  return lock;
}

void Job::join_generation(const GroupRequest& request) {
  const auto lock = lock_start(request.timeout);
  if (request.is_default || !begun_)
    begin_generation(request);
  else
    start_network(request.job_rank, request.job_size, request.timeout, false);
}

void Job::begin_generation(const GroupRequest& request) {
  begun_ = false;
  liveness_.end_generation();
  std::string key;
  std::shared_ptr<KvStore> store;
  {
    // On torch's connection: a TCPStore server resolves each client's name in turn, which may take seconds.
    std::lock_guard lock(mutex_);
    store = store_ = std::make_shared<SignedStore>(request.store(), Signer::of_launch());
    ++generation_;
    times_made_.clear();
    key = key_prefix() + "/alive";
  }
  start_network(request.job_rank, request.job_size, request.timeout, true);
  liveness_.begin(key, [store] { return store->clone(); });
  begun_ = true;
}

void Job::start_network(int rank, int size, std::chrono::milliseconds timeout, bool begins_generation) {
  NetworkOptions options;
  {
    std::lock_guard lock(mutex_);
    options.store = store_;
    options.key = key_prefix();
  }
  set_log_rank(rank, size);
  host::selected_isa();  // an invalid MPI_GDR_SIMD fails before the network starts
  const bool first = !network_.started();
  options.rank = rank;
  options.size = size;
  options.bootstrap = Env::get().bootstrap;
  options.rendezvous_timeout = timeout;
  options.init_timeout = std::min<std::chrono::milliseconds>(timeout, std::chrono::minutes(5));
  options.poll = options_.poll;
  network_.start(options);
  if (first && rank == 0) warn_of_unknown_variables();  // usually equal on all ranks
  if (!first && begins_generation) network_.renumber(options);
  if (const auto log = flight()) log->set_rank(rank);
}

void Job::start_from_launcher(int rank, int size, std::chrono::milliseconds timeout) {
  check_process();
  const auto lock = lock_start(timeout);
  start_network(rank, size, timeout, false);
}

void Job::start_engine(const std::vector<Member>& members, int rank, int size) {
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
  flight_ = make_flight_writer(members[0].job, rank, size, options_.version);
  if (flight_) options.observers.push_back(flight_);
  if (trace_) options.observers.push_back(trace_);
  if (Env::get().debug == LogLevel::Detail) options.observers.push_back(std::make_shared<CallChecker>());
  options.explain = [this](const GroupState& group) { return liveness_.explain(group); };
  options.quiet = [this](const GroupState& group) { return liveness_.quiet(group); };
  options.on_slow = [this](const Operation& operation) { liveness_.slow_calls().note(operation); };
  engine_ = Engine::create(options);
  set_last_words([flight = flight_, trace = trace_](const std::string& reason) -> std::string {
    std::string outcome;
    if (flight) outcome = flight->write_and_describe(reason, std::chrono::seconds(1));  // null: turned off
    if (trace) trace->write(reason, std::chrono::milliseconds(500));  // second, as the longer file
    return outcome;
  });
  if ((flight_ || trace_) && Env::get().flight_signal)
    flight_signal_ = std::make_unique<FlightSignal>(Env::get().flight_signal, flight_, trace_);
  if (log_enabled(LogLevel::Info)) print_summary();
  const auto ranks_here = static_cast<int>(std::count(hosts.begin(), hosts.end(), host_identity()));
  if (const std::string problem =
          binding_problem(usable_cpus(), ranks_here, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
      !problem.empty())
    log(LogLevel::Warn, "BIND", problem);
  if (options.oversubscribed)
    log(LogLevel::Info, "INIT", "more ranks than cores on a node: waiting ranks yield their core");
}

void Job::print_summary() const {
  const std::vector<std::string> network = network_.summary();
  std::ostringstream settings;
  for (const Env::Variable& v : Env::get().table())
    if (v.from_environment) settings << ' ' << v.name << '=' << v.value;
  log(LogLevel::Info, "INIT", "mpi-gdr ", options_.version, " for ", options_.built_for, "; ", network[0]);
  for (std::size_t i = 1; i < network.size(); ++i) log(LogLevel::Info, "INIT", network[i]);
  log(LogLevel::Info, "INIT", "kernels: ", name(host::selected_isa()));
  log(LogLevel::Info, "INIT", "variables:", settings.str().empty() ? " none set" : settings.str());
}

std::shared_ptr<Trace> Job::trace(int rank, int size) {
  std::lock_guard lock(mutex_);
  if (!trace_ && !engine_) trace_ = make_trace(rank, size, options_.version);
  return trace_;
}

void Job::write_trace(const char* reason) noexcept {
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
  }
}

Engine& Job::engine() {
  std::lock_guard lock(mutex_);
  MPI_GDR_CHECK(engine_ != nullptr);
  return *engine_;
}

std::shared_ptr<FlightWriter> Job::flight() {
  std::lock_guard lock(mutex_);
  return flight_;
}

// Only the first rank of a group has a key.
void Job::remember_choices(const Group& group) {
  if (group.choices_key().empty() || forked_child.load(std::memory_order_relaxed)) return;
  MeasuredChoices measured = group.rival_report();
  std::erase_if(measured, [](const auto& choice) { return !choice.measured || choice.speedup <= 0; });
  if (measured.empty()) return;
  const std::string problem = ChoiceCache::save_users(group.choices_key(), measured);
  if (!problem.empty()) log(LogLevel::Info, "COLL", "measured choices are not remembered: ", problem);
}

void Job::group_closed(const Group& group) {
  const bool last = open_groups_.fetch_sub(1, std::memory_order_relaxed) == 1;
  liveness_.closed(group);
  remember_choices(group);
  if (last) write_trace("the last process group was destroyed");
}

void Job::finalize(const std::string& failure) noexcept {
  if (forked_child.load(std::memory_order_relaxed) || finalized_.exchange(true, std::memory_order_acq_rel))
    return;
  using std::chrono::milliseconds;
  const bool orderly = open_groups_.load(std::memory_order_relaxed) == 0;
  bool stuck = false;
  std::string unsettled;
  try {
    unsettled = liveness_.unsettled();
    if (!failure.empty()) network_.mark_failed("an uncaught exception");
    Engine* engine;
    std::unique_ptr<FlightSignal> flight_signal;
    {
      std::lock_guard lock(mutex_);
      engine = engine_.get();
      flight_signal = std::move(flight_signal_);
    }
    if (engine && !network_.failed()) engine->settle(std::chrono::seconds(1));
    const bool failed = network_.failed();
    std::string why =
        orderly ? "it has destroyed its process groups" : "its program ended with open process groups";
    if (failed) why = "its program ended after a failure";
    if (!failure.empty()) why = "its program ended with " + failure;
    liveness_.end(why);
    if (failed) liveness_.farewell(false, milliseconds(1500));
    if (engine && !engine->shutdown())
      network_.mark_failed(engine->left_behind() ? "a thread is inside the MPI library"
                                                 : "operations were under way when the program ended");
    if (network_.failed()) liveness_.farewell(false, milliseconds(1500));  // no effect if announced before
    stuck = engine && engine->left_behind();
    write_trace("the process ends");
    flight_signal.reset();  // may wait for a log that is being written
    // The interpreter reports an exception itself.
    if (const char* const why = network_.failure(); why && failure.empty() && network_.can_finalize())
      log(LogLevel::Warn, "INIT", "this rank does not call MPI_Finalize: ", why);
  } catch (...) {
    network_.mark_failed("no memory");
  }
  if (stuck) skip_other_exit_handlers();  // except those registered later, which run first
  const auto start = Clock::now();
  bool reported = false;
  std::optional<std::uint64_t> sum = liveness_.checksum_of_calls();
  const bool finalized = network_.finalize(orderly && failure.empty(), sum, [&] {
    if (!reported && Clock::now() - start > std::chrono::seconds(1)) {
      reported = true;
      liveness_.farewell(true, milliseconds(500));
    }
    return liveness_.missing();
  });
  if (reported && !finalized) liveness_.give_up(milliseconds(500));
  // Another library finalises MPI, so network_.finalize() did not wait for the ranks.
  if (!reported && !finalized && !network_.failed()) liveness_.farewell(true, milliseconds(500));
  liveness_.linger();
  liveness_.stop(milliseconds(500));
  if (!unsettled.empty())
    end_with_failure("process " + unsettled + " (to recover, call destroy_process_group or abort)");
  else if (sum.value_or(0) != 0)
    end_with_failure(
        "the ranks of a group called different collectives; set MPI_GDR_DEBUG=DETAIL to name them");
}

}  // namespace mpi_gdr
