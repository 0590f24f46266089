#include "torch/world.hpp"

#include <ATen/DeviceAccelerator.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <sstream>

#include "bootstrap/host.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/shared_memory.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "device/host/isa.hpp"
#include "engine/selection_source.hpp"
#include "torch/flight.hpp"
#include "torch/memory.hpp"
#include "torch/store.hpp"
#include "torch/watched_store.hpp"
#include "transport/mpi/mpi_transport.hpp"
#include "transport/mpi/runtime.hpp"
#include "transport/shm/node_memory.hpp"

extern char** environ;

namespace mpigdr::torch_binding {
namespace {

std::atomic<bool> forked_child{false};

constexpr std::size_t kMostOnNode = 256;  // ranks of a group that share memory

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// torchrun shares one store among all attempts of an elastic job, and a process may create and destroy the
// default group several times over the same store: keys of one must never be seen by another.
std::string key_prefix(int generation) {
  return "mpi-gdr/" + variable("TORCHELASTIC_RUN_ID") + "/" + variable("TORCHELASTIC_RESTART_COUNT") + "/" +
         std::to_string(generation);
}

// FNV-1a: equal on all ranks and releases, unlike std::hash.
std::uint64_t hash(const std::vector<int>& ranks) {
  std::uint64_t h = 14695981039346656037u;
  for (int rank : ranks)
    for (int byte = 0; byte < 4; ++byte)
      h = (h ^ ((static_cast<unsigned>(rank) >> (8 * byte)) & 0xff)) * 1099511628211u;
  return h;
}

std::string packed(const std::vector<SharedSetting>& settings) {
  std::vector<std::string> fields;
  for (const SharedSetting& s : settings) fields.insert(fields.end(), {s.name, s.value, s.shown});
  return pack(fields);
}

std::vector<SharedSetting> unpacked(const std::string& text) {
  const std::vector<std::string> fields = unpack(text);
  std::vector<SharedSetting> settings;
  for (std::size_t i = 0; i + 2 < fields.size(); i += 3)
    settings.push_back({fields[i], fields[i + 1], fields[i + 2]});
  return settings;
}

// What each member brings to the meeting of a new group.
enum Field { kSettings, kAccelerator, kHost, kCpus, kJob, kSegment };

std::vector<std::string> own_fields(const std::string& settings, const shm::Segment* segment) {
  return {settings,        at::getAccelerator().has_value() ? "1" : "0",
          host_identity(), usable_cpus(),
          new_job_name(),  segment ? segment->ticket() : ""};
}

// Shared memory for a group whose members are all on this host; null where there is none to be had.
std::unique_ptr<shm::Segment> make_segment(const std::vector<int>& members) {
  if (members.size() < 2 || members.size() > kMostOnNode || !Env::get().node_memory) return nullptr;
  const auto& all = mpi::processes();
  const std::uint64_t here = all[static_cast<std::size_t>(mpi::rank())].domain;
  if (here == 0 || std::any_of(members.begin(), members.end(),
                               [&](int r) { return all[static_cast<std::size_t>(r)].domain != here; }))
    return nullptr;
  try {
    return std::make_unique<shm::Segment>(group_arena());
  } catch (const Error& error) {
    log(LogLevel::Warn, "INIT", "no shared memory inside the node: ", error.what());
    return nullptr;
  }
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

void World::begin_generation(c10::intrusive_ptr<c10d::Store> store) {
  // A connection of our own, because a blocking get of the user holds the lock of his. One for all groups:
  // each clone of a TCPStore looks up the server's address backwards, which takes seconds where no name
  // server answers.
  auto own = store->clone();
  std::lock_guard lock(mutex_);
  default_store_ = std::move(store);
  store_ = std::move(own);
  ++generation_;
  times_made_.clear();
}

void World::start_mpi(int rank, int size, std::chrono::milliseconds timeout) {
  std::unique_ptr<C10dStore> store;
  std::string key;
  {
    std::lock_guard lock(mutex_);
    if (store_) store = std::make_unique<C10dStore>(store_);
    key = key_prefix(generation_);
  }
  set_log_rank(rank, size);
  host::selected_isa();  // a wrong MPI_GDR_SIMD is told before MPI starts
  const bool first = !mpi::initialized();
  mpi::RuntimeOptions options;
  options.rank = rank;
  options.size = size;
  options.bootstrap = Env::get().bootstrap;
  options.store = store.get();
  options.key = key;
  options.rendezvous_timeout = timeout;
  options.init_timeout = std::min<std::chrono::milliseconds>(timeout, std::chrono::minutes(5));
  mpi::initialize(options);
  if (first) warn_of_unknown_variables();
}

void World::initialize_from_launcher(int rank, int size, std::chrono::milliseconds timeout) {
  check_process();
  start_mpi(rank, size, timeout);
}

void World::start_engine(const std::vector<std::string>& blobs, int rank, int size) {
  std::lock_guard lock(mutex_);
  if (engine_) return;
  std::vector<std::string> hosts, cpus;
  for (const std::string& blob : blobs) {
    const std::vector<std::string> fields = unpack(blob);
    hosts.push_back(fields[kHost]);
    cpus.push_back(fields[kCpus]);
  }
  EngineOptions options;
  options.oversubscribed = oversubscribed(number_nodes(hosts), cpus);
  options.longest_nap = std::chrono::microseconds(Env::get().nap_us);
  // Rank 0 of the first group names the job.
  options.flight = make_flight_writer(unpack(blobs[0])[kJob], rank, size);
  options.trace = trace_;
  options.explain = [this](const Group& group) { return liveness_.explain(group); };
  engine_ = Engine::create(options);
  set_last_words([flight = options.flight, trace = trace_](const std::string& reason) -> std::string {
    std::string told;
    if (flight) told = flight->write_and_tell(reason, std::chrono::seconds(1));  // else turned off
    if (trace) trace->write(reason, std::chrono::milliseconds(500));             // the longer file: second
    return told;
  });
  if (options.flight && Env::get().flight_signal)
    flight_signal_ = std::make_unique<FlightSignal>(Env::get().flight_signal, options.flight);
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
      mpi.library, " (", mpi.library_path, ", ", mpi.abi, ", MPI ", mpi.standard, ")");
  log(LogLevel::Info, "INIT", "started by ", mpi.initialized_by, ", bootstrap ", mpi.bootstrap,
      ", thread level ", mpi.thread_level, ", ", mpi.nodes, " node(s), rank ", mpi.rank_on_node, " of ",
      mpi.ranks_on_node, " on node ", mpi.node);
  log(LogLevel::Info, "INIT", "kernels: ", host::name(host::selected_isa()));
  log(LogLevel::Info, "INIT", "accelerator tensors: copied to the host and back, blocking");
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

World::NewGroup World::make_group(const c10d::DistributedBackendOptions& options, const JobInfo& job,
                                  std::chrono::milliseconds timeout, const std::string& selection) {
  check_process();
  if (finalized_.load(std::memory_order_acquire))
    fail(ErrorCode::Aborted, "MPI was finalised in this process, and it cannot be started twice");
  // A bad variable or file is told before anyone is waited for.
  const auto planner = std::make_shared<Planner>(Env::get(), selection);
  const std::string settings = packed(planner->settings());
  const bool is_default = options.global_ranks_in_group.empty();
  const int world_rank = is_default || job.rank < 0 ? options.group_rank : job.rank;
  const int world_size = is_default || job.size < 0 ? options.group_size : job.size;

  trace(world_rank, world_size);  // so is a file that cannot be written

  bool need_generation;
  {
    std::lock_guard lock(mutex_);
    need_generation = is_default || !store_;
  }
  if (need_generation) begin_generation(is_default || !job.store ? options.store : job.store);
  start_mpi(world_rank, world_size, timeout);
  if (need_generation) {
    std::string key;
    c10::intrusive_ptr<c10d::Store> shared;
    {
      std::lock_guard lock(mutex_);
      key = key_prefix(generation_) + "/alive";
      shared = store_;
    }
    // Connected on the thread that uses it: a connection may take seconds.
    liveness_.begin(key, [shared] { return C10dStore(shared).clone(); });
  }

  std::vector<int> members(options.global_ranks_in_group.begin(), options.global_ranks_in_group.end());
  if (is_default) {
    members.resize(world_size);
    std::iota(members.begin(), members.end(), 0);
  }

  // Met over the store before the blocking MPI call. The key is made of the members and of how often they
  // have met: group ids differ between ranks (use_local_synchronization), and other groups may be made in
  // between.
  std::string prefix;
  int times;
  const auto deadline = Clock::now() + timeout;
  std::unique_ptr<KvStore> store;
  {
    std::lock_guard lock(mutex_);
    times = times_made_[members]++;
    prefix =
        key_prefix(generation_) + "/group/" + std::to_string(hash(members)) + "/" + std::to_string(times);
    store =
        std::make_unique<WatchedStore>(C10dStore(store_), liveness_, "group " + options.group_id, deadline);
  }
  auto segment = make_segment(members);
  const std::vector<std::string> own = own_fields(settings, segment.get());
  const auto all_there = [&] {
    if (const std::string lost = liveness_.lost_among(members, true); !lost.empty())
      fail(ErrorCode::Remote, "group ", options.group_id, " cannot be made: ", lost);
  };
  std::vector<std::string> blobs;
  try {
    blobs =
        rendezvous(*store, prefix, options.group_rank, options.group_size, pack(own), deadline, all_there);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::System) throw;
    // The store failed: does it, because its host or a member has ended?
    const std::string lost = liveness_.explain(members);
    if (lost.empty()) throw;
    const std::string text = e.what();
    fail(ErrorCode::Remote, "group ", options.group_id, " cannot be made: ", lost, "; ",
         text.substr(0, text.find('\n')));  // torch adds a stack
  }
  bool accelerator = false;
  std::vector<std::string> tickets;
  std::vector<std::vector<SharedSetting>> all_settings;
  for (std::size_t r = 0; r < blobs.size(); ++r) {
    const std::vector<std::string> fields = unpack(blobs[r]);
    accelerator |= fields[kAccelerator] == "1";
    tickets.push_back(fields[kSegment]);
    all_settings.push_back(unpacked(fields[kSettings]));
  }
  if (const std::string text = disagreement(all_settings); !text.empty())
    fail(ErrorCode::Remote, "ranks of group ", options.group_id,
         " have different settings, expected equal ones: ", text);
  start_engine(blobs, world_rank, world_size);
  // Nobody waits for the memory of a rank that has none: its ticket is empty.
  std::shared_ptr<const shm::NodeMemory> node;
  if (segment)
    node = shm::NodeMemory::create(std::move(segment), options.group_rank, tickets, deadline, all_there);

  const int tag = static_cast<int>((hash(members) + static_cast<std::uint64_t>(times)) % 32768);
  std::unique_ptr<mpi::GroupTransport> transport;
  {
    const Liveness::Blocking call(liveness_, "the set-up of group " + options.group_id, members);
    transport = mpi::make_group(members, tag, accelerator,
                                std::max<std::chrono::milliseconds>(timeout, std::chrono::seconds(1)));
  }
  NewGroup made;
  made.world_ranks = members;
  made.transport = transport.get();
  GroupOptions group;
  group.name = options.group_id;
  group.timeout = Env::get().timeout_seconds
                      ? std::chrono::nanoseconds(static_cast<std::int64_t>(*Env::get().timeout_seconds * 1e9))
                      : std::chrono::nanoseconds(timeout);
  group.max_in_flight = Env::get().max_in_flight;
  group.check_calls = Env::get().check_calls;
  group.is_default = is_default;
  group.uid = prefix;
  group.members = members;
  if (node && node->reach() != Reach::None) group.node = std::move(node);
  open_groups_.fetch_add(1, std::memory_order_relaxed);
  made.group = engine().make_group(group, std::move(transport), planner);
  liveness_.opened(engine(), made.group, members, prefix);
  log(LogLevel::Info, "INIT", "group ", group.name, " of ", options.group_size, " rank(s)");
  return made;
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
  try {
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
  liveness_.stop(milliseconds(500));
  if (stuck) skip_other_exit_handlers();
}

}  // namespace mpigdr::torch_binding
