// Creation of groups: the members meet over the store, then inside the network.
#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "bootstrap/host.hpp"
#include "bootstrap/rendezvous.hpp"
#include "collectives/selection_source.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/fnv1a.hpp"
#include "common/log.hpp"
#include "job/group_memory.hpp"
#include "job/job.hpp"
#include "job/records.hpp"
#include "transport/ipc/device_node.hpp"
#include "transport/shm/node_memory.hpp"
#include "transport/shm/node_transport.hpp"

namespace mpi_gdr {
namespace {

constexpr std::size_t kMostOnNode = 256;  // ranks of a group that share memory

std::uint64_t hash(const std::vector<int>& ranks) {
  Fnv1a hash;
  hash.add(ranks.data(), ranks.size() * sizeof ranks[0]);
  return hash.value();
}

std::vector<int> nodes_of(const Membership& job, const std::vector<int>& members) {
  std::vector<int> nodes;
  for (const int r : members) nodes.push_back(job.node_of_rank[static_cast<std::size_t>(r)]);
  return nodes;
}

bool on_one_node(const Membership& job, const std::vector<int>& members) {
  const std::vector<int> nodes = nodes_of(job, members);
  return std::ranges::all_of(nodes, [&](int node) { return node == nodes[0]; });
}

// Ranks of the group that may share memory with this process, ascending: all if all are on this host, else
// those of its node if these are, else none. Equal on all ranks of the node.
std::vector<int> neighbours(const Membership& job, const std::vector<int>& members) {
  std::vector<int> all, node;
  const std::uint64_t here = job.own().domain;
  const auto on_host = [&](int r) {
    return here != 0 &&
           job.processes[static_cast<std::size_t>(members[static_cast<std::size_t>(r)])].domain == here;
  };
  const std::vector<int> nodes = nodes_of(job, members);
  const int own = job.node_of_rank[static_cast<std::size_t>(job.rank)];
  for (int r = 0; r < static_cast<int>(members.size()); ++r) {
    all.push_back(r);
    if (nodes[static_cast<std::size_t>(r)] == own) node.push_back(r);
  }
  const bool apart = Env::get().ranks_per_node > 0 && !on_one_node(job, members);
  if (!apart && all.size() <= kMostOnNode && std::ranges::all_of(all, on_host)) return all;
  if (std::ranges::all_of(node, on_host)) return node;
  return {};
}

std::unique_ptr<shm::Segment> make_segment(std::size_t sharing, std::size_t group) {
  if (sharing < 2 || sharing > kMostOnNode || !Env::get().node_memory) return nullptr;
  try {
    const bool messages = sharing == group && Env::get().messages != MessagePath::Mpi;
    const auto ranks = static_cast<int>(sharing);
    // Tensors of other ranks are read in place only if all ranks share memory.
    return std::make_unique<shm::Segment>(sharing == group ? group_arena() : nullptr,
                                          messages ? shm::message_bytes(ranks) : 0,
                                          ipc::DeviceNode::bytes(ranks) + ipc::NodeFlags::bytes(ranks));
  } catch (const Error& error) {
    log(LogLevel::Warn, "INIT", "no shared memory inside the node: ", error.what());
    return nullptr;
  }
}

bool takes_device_addresses(const Network& network) {
  const Env::Choice choice = Env::get().gpu_aware;
  return choice == Env::Choice::Auto ? network.gpu_aware() : choice == Env::Choice::On;
}

// Warns once per ignored file, not per group.
MeasuredChoices remembered_choices(const std::string& key) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const ChoiceCache::File file = ChoiceCache::read_users(key);
  const std::lock_guard lock(mutex);
  if (!file.problem.empty() && warned.insert(file.path).second)
    log(LogLevel::Warn, "COLL", "remembered choices", file.path.empty() ? "" : " in ", file.path,
        " are ignored: ", file.problem);
  return file.choices;
}

void check_agreement(const std::string& group, const std::vector<Member>& members) {
  std::vector<std::vector<SharedSetting>> settings;
  for (const Member& member : members) settings.push_back(member.settings);
  if (const std::string text = disagreement(settings); !text.empty())
    fail(ErrorCode::Remote, "ranks of group ", group,
         " have different settings, expected equal ones: ", text);
}

// Adds a deadline to the calls of a store: torch's client has none, and an unreachable server closes no
// connection.
class WatchedStore : public KvStore {
 public:
  // `what`: the purpose. A call ends the process if `deadline` passes or the store or rank 0 is lost.
  WatchedStore(std::shared_ptr<KvStore> store, BlockingCalls& calls, std::string what,
               BlockingCalls::Clock::time_point deadline)
      : store_(std::move(store)), calls_(calls), what_(std::move(what)), deadline_(deadline) {}

  void set(const std::string& key, const std::string& value) override {
    const auto call = watch();
    store_->set(key, value);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    const auto call = watch();
    return store_->try_get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const auto call = watch();
    return store_->add(key, amount);
  }
  bool check(const std::string& key) override {
    const auto call = watch();
    return store_->check(key);
  }
  std::unique_ptr<KvStore> clone() override { return store_->clone(); }

 private:
  BlockingCalls::Call watch() { return {calls_, "a call to the job's store for " + what_, {}, deadline_}; }

  const std::shared_ptr<KvStore> store_;
  BlockingCalls& calls_;
  const std::string what_;
  const BlockingCalls::Clock::time_point deadline_;
};

}  // namespace

Job::NewGroup Job::make_group(const GroupRequest& request) {
  check_process();
  if (finalized_.load(std::memory_order_acquire))
    fail(ErrorCode::Aborted, "MPI was finalised in this process, and it cannot be started twice");
  // An invalid variable or file is an error before any wait.
  const auto planner = std::make_shared<Planner>(Env::get(), request.selection);
  trace(request.job_rank, request.job_size);  // fails early if the file cannot be written
  join_generation(request);
  const Meeting meeting = meet(request, *planner);
  start_engine(meeting.members, request.job_rank, request.job_size);
  std::unique_ptr<Transport> transport = connect(request, meeting);

  NewGroup made;
  made.members = request.members;
  // Devices have no exact sums: their tensors go through the host.
  made.served = planner->bits() != Bits::Exact && std::ranges::all_of(meeting.members, &Member::served);
  made.gpu_aware = made.served && std::ranges::all_of(meeting.members, &Member::gpu_aware);
  const GroupOptions options = options_of(request, meeting);
  const bool kernel_copies =
      Env::get().messages != MessagePath::Shm && options.node && options.node->reach() == Reach::All;
  // A gpu_aware library sends from device memory, unlike our messages inside a node; both ends must agree.
  if (!made.gpu_aware) transport = shm::over_node_memory(std::move(transport), options.node, kernel_copies);
  const char* const long_messages = !transport->messages_in_memory() ? ""
                                    : kernel_copies                  ? ", long ones by the kernel's copy"
                                                                     : ", long ones in pieces";
  made.group = std::make_shared<Group>(engine(), options, std::move(transport), planner);
  liveness_.opened(engine(), made.group, request.members, meeting.key);
  open_groups_.fetch_add(1, std::memory_order_relaxed);
  log(LogLevel::Info, "INIT", "group ", request.name, " of ", request.members.size(),
      " rank(s), messages by ", made.group->message_path(), long_messages);
  return made;
}

// Names may differ by rank (use_local_synchronization), so the key has the members and counts their meetings.
Job::Meeting Job::meet(const GroupRequest& request, const Planner& planner) {
  const auto size = static_cast<int>(request.members.size());
  const std::string what = "group " + request.name;
  const auto deadline = Clock::now() + request.timeout;
  Meeting meeting;
  std::unique_ptr<KvStore> store;
  {
    std::lock_guard lock(mutex_);
    meeting.times = times_made_[request.members]++;
    meeting.key = key_prefix() + "/group/" + std::to_string(hash(request.members)) + "/" +
                  std::to_string(meeting.times);
    store = std::make_unique<WatchedStore>(store_, liveness_.blocking(), what, deadline);
  }
  const std::vector<int> here = neighbours(*membership(), request.members);
  auto segment = make_segment(here.size(), request.members.size());
  const Accelerator accelerator = request.accelerator ? request.accelerator() : Accelerator{};
  Member own;
  own.settings = planner.settings();
  own.accelerator = accelerator.present;
  own.served = accelerator.served;
  own.gpu_aware = accelerator.present && takes_device_addresses(network_);
  own.host = host_identity();
  own.cpus = usable_cpus();
  own.job = new_job_name();
  if (segment) own.ticket = segment->ticket();
  if (request.rank == 0 && segment && planner.adapts() && here.size() == request.members.size()) {
    meeting.choices_key = choices_key(network_.info().version, here.size(), own.settings);
    own.choices = to_text(remembered_choices(meeting.choices_key));
  }
  const auto all_there = [&] {
    if (options_.poll) options_.poll();
    if (const std::string lost = liveness_.lost_among(request.members, true); !lost.empty())
      fail(ErrorCode::Remote, what, " cannot be made: ", lost);
  };
  try {
    for (const std::string& blob :
         rendezvous(*store, meeting.key, request.rank, size, packed(own), deadline, all_there))
      meeting.members.push_back(unpacked_member(blob));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::System) throw;
    const std::string lost = liveness_.explain(request.members);
    if (lost.empty()) throw;
    fail(ErrorCode::Remote, what, " cannot be made: ", lost, "; ", e.what());
  }
  check_agreement(request.name, meeting.members);
  if (const std::string& choices = meeting.members[0].choices; !choices.empty()) try {
      meeting.choices = parse_choices(choices);
      if (request.rank == 0)
        log(LogLevel::Info, "COLL", "group ", request.name, ": ", meeting.choices.size(),
            " remembered choice(s) of algorithms");
    } catch (const Error& error) {  // equal on all ranks
      log(LogLevel::Warn, "COLL", "remembered choices of group ", request.name, ": ", error.what());
    }
  if (segment) {
    std::vector<std::string> tickets;
    for (const Member& member : meeting.members) tickets.push_back(member.ticket);
    // No rank waits for one without a ticket. At least 10 s: a rank that fails alone leaves others in MPI.
    meeting.memory =
        shm::NodeMemory::create(std::move(segment), request.rank, tickets,
                                std::max(deadline, Clock::now() + std::chrono::seconds(10)), all_there, here);
  }
  return meeting;
}

std::unique_ptr<Transport> Job::connect(const GroupRequest& request, const Meeting& meeting) {
  GroupTransportOptions options;
  options.ranks = request.members;
  options.tag = static_cast<int>((hash(request.members) + static_cast<std::uint64_t>(meeting.times)) % 32768);
  options.accelerator_channel = std::ranges::any_of(meeting.members, &Member::accelerator);
  options.timeout = std::max<std::chrono::milliseconds>(request.timeout, std::chrono::seconds(1));
  options.name = request.name;
  const BlockingCalls::Call call(liveness_.blocking(), "the set-up of group " + request.name,
                                 request.members);
  return network_.make_group(options);
}

GroupOptions Job::options_of(const GroupRequest& request, const Meeting& meeting) {
  const Env& env = Env::get();
  GroupOptions group;
  group.name = request.name;
  group.timeout = env.timeout_seconds
                      ? std::chrono::nanoseconds(static_cast<std::int64_t>(*env.timeout_seconds * 1e9))
                      : std::chrono::nanoseconds(request.timeout);
  group.max_in_flight = env.max_in_flight;
  group.is_default = request.is_default;
  group.uid = meeting.key;
  group.members = request.members;
  group.choices = meeting.choices;
  group.choices_key = meeting.choices_key;
  group.on_failed = [this](const GroupState& failed, const std::string& reason) {
    liveness_.failed(failed, reason);
  };
  if (meeting.memory && meeting.memory->reach() != Reach::None) group.node = meeting.memory;
  // MPI may report several nodes although the ranks share memory (MPIR_CVAR_NOLOCAL).
  const bool all_share = group.node && group.node->members().size() == request.members.size();
  if (const auto job = membership(); !all_share && !on_one_node(*job, request.members))
    group.topology = std::make_shared<const Topology>(nodes_of(*job, request.members));
  return group;
}

}  // namespace mpi_gdr
