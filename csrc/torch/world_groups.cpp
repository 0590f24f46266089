// How a group comes into being: its members meet over the store, then inside MPI.
#include <algorithm>
#include <numeric>

#include "bootstrap/rendezvous.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "engine/selection_source.hpp"
#include "torch/member.hpp"
#include "torch/memory.hpp"
#include "torch/signals.hpp"
#include "torch/store.hpp"
#include "torch/watched_store.hpp"
#include "torch/world.hpp"
#include "transport/mpi/mpi_transport.hpp"
#include "transport/mpi/runtime.hpp"
#include "transport/shm/node_memory.hpp"
#include "transport/shm/node_transport.hpp"

namespace mpigdr::torch_binding {
namespace {

constexpr std::size_t kMostOnNode = 256;  // ranks of a group that share memory

// FNV-1a: equal on all ranks and releases, unlike std::hash.
std::uint64_t hash(const std::vector<int>& ranks) {
  std::uint64_t h = 14695981039346656037u;
  for (int rank : ranks)
    for (int byte = 0; byte < 4; ++byte)
      h = (h ^ ((static_cast<unsigned>(rank) >> (8 * byte)) & 0xff)) * 1099511628211u;
  return h;
}

std::vector<int> nodes_of(const std::vector<int>& members) {
  std::vector<int> nodes;
  for (const int r : members) nodes.push_back(mpi::node_of_rank()[static_cast<std::size_t>(r)]);
  return nodes;
}

bool on_one_node(const std::vector<int>& members) {
  const std::vector<int> nodes = nodes_of(members);
  return std::count(nodes.begin(), nodes.end(), nodes[0]) == static_cast<std::ptrdiff_t>(nodes.size());
}

// Shared memory for a group whose members are all on this host; null where there is none to be had.
std::unique_ptr<shm::Segment> make_segment(const std::vector<int>& members) {
  if (members.size() < 2 || members.size() > kMostOnNode || !Env::get().node_memory) return nullptr;
  if (Env::get().ranks_per_node > 0 && !on_one_node(members)) return nullptr;
  const auto& all = mpi::processes();
  const std::uint64_t here = all[static_cast<std::size_t>(mpi::rank())].domain;
  if (here == 0 || std::any_of(members.begin(), members.end(),
                               [&](int r) { return all[static_cast<std::size_t>(r)].domain != here; }))
    return nullptr;
  try {
    const std::size_t for_messages =
        Env::get().messages == MessagePath::Mpi ? 0 : shm::message_bytes(static_cast<int>(members.size()));
    return std::make_unique<shm::Segment>(group_arena(), for_messages);
  } catch (const Error& error) {
    log(LogLevel::Warn, "INIT", "no shared memory inside the node: ", error.what());
    return nullptr;
  }
}

}  // namespace

World::NewGroup World::make_group(const c10d::DistributedBackendOptions& options, const JobInfo& job,
                                  std::chrono::milliseconds timeout, const std::string& selection) {
  check_process();
  if (finalized_.load(std::memory_order_acquire))
    fail(ErrorCode::Aborted, "MPI was finalised in this process, and it cannot be started twice");
  // A bad variable or file is told before anyone is waited for.
  const auto planner = std::make_shared<Planner>(Env::get(), selection);
  const bool is_default = options.global_ranks_in_group.empty();
  const int world_rank = is_default || job.rank < 0 ? options.group_rank : job.rank;
  const int world_size = is_default || job.size < 0 ? options.group_size : job.size;

  trace(world_rank, world_size);  // so is a file that cannot be written

  bool need_generation;
  {
    std::lock_guard lock(mutex_);
    need_generation = is_default || !store_;
  }
  if (need_generation) {
    liveness_.end_generation();
    begin_generation(is_default || !job.store ? options.store : job.store);
  }
  start_mpi(world_rank, world_size, timeout, need_generation);
  if (need_generation) {
    std::string key;
    std::shared_ptr<KvStore> shared;
    {
      std::lock_guard lock(mutex_);
      key = key_prefix() + "/alive";
      shared = store_;
    }
    liveness_.begin(key, [shared] { return shared->clone(); });
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
    prefix = key_prefix() + "/group/" + std::to_string(hash(members)) + "/" + std::to_string(times);
    store = std::make_unique<WatchedStore>(store_, liveness_, "group " + options.group_id, deadline);
  }
  auto segment = make_segment(members);
  const Member own = this_member(planner->settings(), segment ? segment->ticket() : "");
  const auto all_there = [&] {
    check_interrupt();
    if (const std::string lost = liveness_.lost_among(members, true); !lost.empty())
      fail(ErrorCode::Remote, "group ", options.group_id, " cannot be made: ", lost);
  };
  std::vector<std::string> blobs;
  try {
    blobs =
        rendezvous(*store, prefix, options.group_rank, options.group_size, packed(own), deadline, all_there);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::System) throw;
    // The store failed: does it, because its host or a member has ended?
    const std::string lost = liveness_.explain(members);
    if (lost.empty()) throw;
    fail(ErrorCode::Remote, "group ", options.group_id, " cannot be made: ", lost, "; ", e.what());
  }
  std::vector<Member> met;
  for (const std::string& blob : blobs) met.push_back(unpacked_member(blob));
  bool accelerator = false, served = true, gpu_aware = true;
  std::vector<std::string> tickets;
  std::vector<std::vector<SharedSetting>> all_settings;
  for (const Member& member : met) {
    accelerator |= member.accelerator;
    served &= member.served;
    gpu_aware &= member.gpu_aware;
    tickets.push_back(member.ticket);
    all_settings.push_back(member.settings);
  }
  if (const std::string text = disagreement(all_settings); !text.empty())
    fail(ErrorCode::Remote, "ranks of group ", options.group_id,
         " have different settings, expected equal ones: ", text);
  start_engine(met, world_rank, world_size);
  // Nobody waits for the memory of a rank that has none: its ticket is empty.
  std::shared_ptr<const shm::NodeMemory> node;
  if (segment)
    node = shm::NodeMemory::create(std::move(segment), options.group_rank, tickets, deadline, all_there);

  const int tag = static_cast<int>((hash(members) + static_cast<std::uint64_t>(times)) % 32768);
  std::unique_ptr<mpi::GroupTransport> transport;
  {
    const Liveness::Blocking call(liveness_, "the set-up of group " + options.group_id, members);
    transport = mpi::make_group(members, tag, accelerator,
                                std::max<std::chrono::milliseconds>(timeout, std::chrono::seconds(1)),
                                options.group_id);
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
  group.on_failed = [this](const Group& failed, const std::string& reason) {
    liveness_.failed(failed, reason);
  };
  if (node && node->reach() != Reach::None) group.node = std::move(node);
  // An MPI may see several nodes where the ranks do share memory (MPIR_CVAR_NOLOCAL).
  if (!group.node && !on_one_node(members))
    group.topology = std::make_shared<const Topology>(nodes_of(members));
  open_groups_.fetch_add(1, std::memory_order_relaxed);
  made.served = served;
  gpu_aware &= served;
  made.gpu_aware = gpu_aware;
  // A device's memory is within the library's reach then, but not within that of our messages inside a node;
  // and both ends of a message must go the same way.
  std::unique_ptr<Transport> messages = std::move(transport);
  const bool kernel_copies =
      Env::get().messages != MessagePath::Shm && group.node && group.node->reach() == Reach::All;
  if (!gpu_aware)
    messages = shm::over_node_memory(std::move(messages), group.node, {.kernel_copies = kernel_copies});
  const bool in_memory = messages->messages_in_memory();
  made.group = engine().make_group(group, std::move(messages), planner);
  liveness_.opened(engine(), made.group, members, prefix);
  log(LogLevel::Info, "INIT", "group ", group.name, " of ", options.group_size, " rank(s), messages by ",
      made.group->message_path(),
      !in_memory      ? ""
      : kernel_copies ? ", long ones by the kernel's copy"
                      : ", long ones in pieces");
  return made;
}

}  // namespace mpigdr::torch_binding
