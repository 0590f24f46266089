// Calls on a device's tensors: what is submitted to streams, and in which order (docs/device.md).
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <cstring>
#include <numeric>
#include <optional>

#include "c10d/backend.hpp"
#include "c10d/captured_work.hpp"
#include "c10d/message_trial.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "common/memory_file.hpp"
#include "job/device_failure.hpp"
#include "transport/ipc/device_node.hpp"
#include "transport/nccl/communicator.hpp"

namespace mpi_gdr::torch_binding {
namespace {

// Runs the epilogues of a collective on `stream`, which has its results.
void conclude(TensorCall& call, StreamResult& result, const c10::Stream& stream) {
  const c10::StreamGuard guard(stream);
  for (auto& epilogue : call.epilogues) epilogue();
  result.computed(stream);
}

// Logs why collectives use messages: first as a warning, unless a setting or a missing library is the reason.
void report_messages(const std::string& group, const TensorCall& call, const std::string& why) {
  static std::atomic_flag warned;
  const bool wanted = call.streams && Env::get().device_sharing && Env::get().node_memory;
  log(wanted && !warned.test_and_set() ? LogLevel::Warn : LogLevel::Info, "INIT", "group ", group,
      ": devices share no memory: ", why);
}

}  // namespace

// Ranks of one device take memory from each other: all empty their caches before any tries again.
bool MpiBackend::all_empty_caches(const TensorCall& call) {
  bool emptied = true;
  try {
    if (call.streams) c10::getDeviceAllocator(call.streams->where().type())->emptyCache();
  } catch (const std::exception&) {
    emptied = false;  // the allocator has no such cache, or the device has failed
  }
  return all_ranks_agree(emptied);
}

std::string MpiBackend::first_reason(const std::string& own) {
  using Text = std::array<char, 240>;
  struct Buffers {
    Text own{};
    std::vector<Text> all;
  };
  // Owned by the operation, and never freed if that fails: other ranks may still write to it.
  const auto buffers = std::make_shared<Buffers>();
  own.copy(buffers->own.data(), sizeof(Text) - 1);
  buffers->all.resize(static_cast<std::size_t>(size_));
  CollectiveCall call;
  call.spec = {Collective::AllGather, rank_, size_};
  call.spec.count = sizeof(Text);
  call.input = &buffers->own;
  call.output = buffers->all.data();
  IssueOptions options;
  options.name = "all_gather of what devices share";
  options.channel = Channel::Accelerator;
  options.background = false;
  options.keepalive = buffers;
  const OperationPtr operation = group_->issue({std::move(call)}, std::move(options));
  group_->engine().wait(*operation);
  for (std::size_t r = 0; r < buffers->all.size(); ++r)
    if (const std::string text(buffers->all[r].data(), strnlen(buffers->all[r].data(), sizeof(Text)));
        !text.empty())
      return "rank " + std::to_string(r) + ": " + text;
  return "";
}

void MpiBackend::share_devices(const TensorCall& call) {
  const auto is_ready = [&] {
    const Sharing so_far = sharing_.load(std::memory_order_acquire);
    return so_far == Sharing::Done || (so_far == Sharing::Library && group_->by_library(call.calls));
  };
  if (is_ready()) return;
  const std::lock_guard lock(sharing_mutex_);
  if (is_ready()) return;
  const bool first = sharing_.load(std::memory_order_relaxed) == Sharing::Nothing;
  const Topology* const topology = group_->topology().get();
  const bool inside = topology && topology->two_level();
  // Equal on all ranks.
  const bool shares = size_ > 1 && (topology ? inside : group_->node() != nullptr);
  const bool tries = size_ > 1 && devices_.gpu_aware() && first;
  if (!shares && size_ > 1 && !topology && Env::get().node_engine == NodeEngine::Nccl)
    fail(ErrorCode::InvalidUsage, call.name, ": MPI_GDR_NODE=nccl, but the ranks of group ", group_->name(),
         " share no host memory, or MPI_GDR_SHM=off");
  if (shares || tries) {
    if (call.streams && call.streams->capturing(call.streams->current()))
      fail(ErrorCode::InvalidUsage, call.name,
           ": the current stream is being captured into a graph, and this is the first "
           "collective of group ",
           group_->name(),
           " on a device, or the first that NCCL does not carry, which blocks: run one of it "
           "before the capture");
    // The set-up waits for the device, and so for a message that the peer may send only after this call.
    if (!all_ranks_agree(!Gate::any_holds_a_stream())) return;  // on all ranks, until a later call
  }
  if (tries) try_messages(call);
  if (first && shares && share_library(call, inside ? topology : nullptr)) {
    sharing_.store(Sharing::Library, std::memory_order_release);
    if (group_->by_library(call.calls)) return;
  }
  if (shares)
    share_memory(call, inside ? topology : nullptr);
  else if (size_ > 1 && !topology)
    report_messages(group_->name(), call,
                    !Env::get().node_memory
                        ? "MPI_GDR_SHM=off"
                        : "the ranks share no host memory either, because they are more than 256, or in "
                          "several PID namespaces (docker --pid=host)");
  sharing_.store(Sharing::Done, std::memory_order_release);
}

std::vector<int> MpiBackend::members_here(const Topology* inside) const {
  if (inside) return inside->members(inside->node(rank_));
  std::vector<int> members(static_cast<std::size_t>(size_));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

ipc::Areas MpiBackend::areas(const std::vector<int>& members, bool of_library) const {
  const auto size = static_cast<int>(members.size());
  const std::size_t bytes = ipc::DeviceNode::bytes(size);
  const std::shared_ptr<const shm::NodeMemory>& node = group_->node();
  ipc::Areas areas{{}, node};
  if (node) {
    for (const int r : members) areas.of.push_back(node->devices(r) + (of_library ? bytes : 0));
  } else if (size == 1) {
    const MemoryFile own = make_memory_file(bytes);
    areas = {{static_cast<std::byte*>(own.memory)},
             std::shared_ptr<const void>(own.memory, [own, bytes](const void*) { release(own, bytes); })};
  } else {
    fail(ErrorCode::System, "the ranks of its node share no host memory");
  }
  return areas;
}

bool MpiBackend::share_library(const TensorCall& call, const Topology* inside) {
  const NodeEngine wanted = Env::get().node_engine;
  if (wanted == NodeEngine::Own) return false;
  const std::vector<int> members = members_here(inside);
  const int place = inside ? inside->place(rank_) : rank_;
  std::shared_ptr<const ipc::NodeFlags> flags;
  std::shared_ptr<nccl::Communicator> communicator;
  std::string why = "nothing serves these devices", reason;
  const nccl::Library* const library = call.streams ? nccl::find_library(why) : nullptr;
  // After a step all ranks have the reason of the first rank where it failed; no later step runs then.
  const auto step = [&](auto&& take) {
    if (!reason.empty()) return;
    if (library) why.clear();
    try {
      if (library) take();
    } catch (const std::exception& e) {
      why = e.what();
    }
    reason = first_reason(why);
  };
  std::optional<c10::DeviceGuard> guard;  // NCCL takes the thread's current device
  step([&] {
    guard.emplace(call.streams->where());
    flags = std::make_shared<const ipc::NodeFlags>(place, areas(members, true), members);
    ipc::Offer& own = flags->offer(place);
    own.version = library->version;
    call.streams->device().identity().copy(own.identity.data(), own.identity.size());
  });
  const bool loaded = reason.empty();
  bool alone = true;  // no other rank uses this device
  step([&] {
    for (int r = 0; r < flags->size(); ++r) {
      const ipc::Offer& theirs = flags->offer(r);
      alone &= r == place || theirs.identity != flags->offer(place).identity;
      if (theirs.version != library->version)
        fail(ErrorCode::System, "NCCL ", nccl::version_text(library->version), ", but that of rank ",
             flags->member(r), " is ", nccl::version_text(theirs.version));
    }
    if (!alone) fail(ErrorCode::System, "another rank uses ", call.streams->where().str(), ", too");
  });
  if (loaded) alone = all_ranks_agree(alone);
  const bool agreed = reason.empty();
  const auto make = [&] {
    if (!communicator) communicator = nccl::Communicator::make(*library, call.streams->device(), flags);
  };
  step(make);
  if (agreed && !reason.empty() && all_empty_caches(call)) {
    reason.clear();
    step(make);
  }
  step([&] {
    if (place == 0) communicator->draw_id();
  });
  const auto deadline = std::chrono::steady_clock::now() + group_->timeout();
  step([&] { communicator->connect(deadline); });
  step([&] { communicator->warm_up(deadline); });
  if (!reason.empty()) {
    if (communicator) communicator->abort();
    if (wanted == NodeEngine::Nccl)
      fail(ErrorCode::InvalidUsage, call.name,
           ": MPI_GDR_NODE=nccl, but NCCL cannot carry the collectives of group ", group_->name(), ": ",
           reason);
    static std::atomic_flag warned;
    log(loaded && alone && !warned.test_and_set() ? LogLevel::Warn : LogLevel::Info, "INIT", "group ",
        group_->name(), ": collectives do not use NCCL: ", reason);
    return false;
  }
  log(LogLevel::Info, "INIT", "group ", group_->name(), ": NCCL ", communicator->version(),
      " carries collectives inside ", inside ? "each node" : "the node");
  group_->share_library(std::move(communicator));
  return true;
}

void MpiBackend::try_messages(const TensorCall& call) {
  if (!all_ranks_agree(call.streams && call.streams->sees_messages_in_order())) return;
  std::shared_ptr<Group> group;  // of its own, because its operations may fail
  std::string why =
      "the MPI library accepts addresses of the device, but its messages did not progress while a stream "
      "waited and another thread freed memory";
  bool moved = true, all = true;
  const auto agree = [&](auto&& attempt) {
    try {
      if (all) moved = attempt();
    } catch (const std::exception& e) {
      moved = false;
      why = e.what();
    }
    all = all && all_ranks_agree(moved);
  };
  agree([&] {
    auto options = c10::make_intrusive<Options>(*options_);
    options->group_name = group_->name() + ", trial of GPU-aware messages";
    group = this_job().make_group(child_request(*options, rank_, world_ranks_)).group;
    return true;
  });
  for (const std::size_t bytes : MessageTrial::kSizes) {
    std::optional<MessageTrial> trial;  // no rank begins if another one cannot
    agree([&] { return trial.emplace(*call.streams, rank_, size_, bytes), true; });
    agree([&] { return trial->run(*group); });
  }
  if (all) call.streams->pass_addresses();
  const bool whole = all_ranks_agree(group && !group->failed());
  if (group) {
    if (!whole) group->engine().abort(*group, "the trial failed on another rank");
    group->engine().close(*group);
    this_job().group_closed(*group);
  }
  log(moved ? LogLevel::Info : LogLevel::Warn, "INIT", "group ", group_->name(), ": messages of tensors on ",
      call.streams->where().str(),
      all     ? " are passed to MPI by address (GPU-aware)"
      : moved ? " go through pinned host memory: the trial of GPU-aware messages failed on another rank"
              : " go through pinned host memory: " + why);
}

void MpiBackend::share_memory(const TensorCall& call, const Topology* inside) {
  const std::vector<int> members = members_here(inside);
  std::shared_ptr<ipc::DeviceNode> node;
  std::string why = !Env::get().node_memory ? "MPI_GDR_SHM=off"
                    : call.streams          ? "MPI_GDR_IPC=off"
                                            : "nothing serves these devices";
  const auto make_node = [&] {  // false: the device has too little memory
    if (!call.streams || !Env::get().device_sharing || !Env::get().node_memory || node) return true;
    try {
      const int place = inside ? inside->place(rank_) : rank_;
      node = std::make_shared<ipc::DeviceNode>(call.streams->device(), place, areas(members, false), members);
      node->publish();
    } catch (const std::exception& e) {
      node.reset();
      why = std::string(e.what()) + "; each group needs its own device memory, shareable by CUDA IPC";
      return dynamic_cast<const NoMemory*>(&e) == nullptr;
    }
    return true;
  };
  if (!all_ranks_agree(make_node()) && all_empty_caches(call)) all_ranks_agree(make_node());
  const bool attached = node && node->attach(why), all = all_ranks_agree(attached);
  if (all) {
    group_->share_devices(node);
  } else {
    // Not freed before all ranks have unmapped it.
    const bool free = all_ranks_agree(!node || node->detach());
    if (node && free) node->reclaim();
  }
  if (!attached)
    report_messages(group_->name(), call, why);
  else
    log(LogLevel::Info, "INIT", "group ", group_->name(), ": devices ",
        !all     ? "of other ranks cannot share memory with theirs"
        : inside ? "share staging memory inside each node"
                 : "share staging memory");
  static std::once_flag warned;
  if (all && node->takes_turns())
    std::call_once(warned, [&] {
      log(LogLevel::Warn, "INIT", "ranks of this host share ", call.streams->where().str(),
          " without MPS: their kernels take turns, and a collective waits for milliseconds; start the job "
          "under an MPS daemon (mpi-gdr run --mps)");
    });
}

OperationPtr MpiBackend::submit_collectives(TensorCall& call, IssueOptions& options, StreamResult& result) {
  const DeviceStreams& on = *call.streams;
  const c10::Stream caller = on.current();
  const std::unique_ptr<DeviceQueue> queue = on.queue(caller);
  const auto memory = [](at::Tensor tensor) {
    void* const data = tensor.mutable_data_ptr();
    return std::shared_ptr<void>(std::make_shared<at::Tensor>(std::move(tensor)), data);
  };
  StreamTarget target{on.device(), on.queues(), *queue, on.flags()};
  target.through_host = on.through_host();
  target.device_memory = [&](std::size_t bytes) { return memory(on.device_memory(bytes)); };
  target.host_memory = [&](std::size_t bytes) { return memory(on.host_memory(bytes)); };
  target.conclude = [&] { conclude(call, result, on.results()); };
  options.stream = &target;
  OperationPtr operation = group_->issue(std::move(call.calls), std::move(options));
  call.epilogues.clear();
  return operation;
}

// The engine takes no part. The Work keeps the tensors until the capturing stream is ordered behind the
// calls, also if an error leaves only some of them in the graph.
MpiBackend::WorkPtr MpiBackend::capture(TensorCall call) {
  if (Env::get().blocking_wait)
    fail(ErrorCode::InvalidUsage, call.name,
         ": the current stream is being captured into a graph, and with MPI_GDR_BLOCKING_WAIT=on the CPU "
         "would wait for the result");
  share_devices(call);
  const DeviceStreams& on = *call.streams;
  const auto result = std::make_shared<StreamResult>(call.streams);
  const std::unique_ptr<DeviceQueue> caller = on.queue(on.current()), captured = on.queue(on.captured());
  DeviceQueue* const queues[] = {captured.get()};
  StreamTarget target{on.device(), queues, *caller, nullptr};
  target.conclude = [&] { conclude(call, *result, on.captured()); };
  result->keep(std::move(call.held));
  auto work = c10::make_intrusive<CapturedWork>(rank_, call.type, at::TensorList(call.outputs).vec(), result);
  group_->capture(call.calls, call.name, target, [group = group_.get()] { captured_group_failed(*group); });
  if (!call.async) work->wait();
  return work;
}

OperationPtr MpiBackend::submit_messages(TensorCall& call, IssueOptions& options, StreamResult& result) {
  const DeviceStreams& on = *call.streams;
  const c10::Stream caller = on.current();
  group_->check(call.calls, call.name);  // before anything is submitted
  auto gate = std::make_shared<Gate>(on.flags());
  gate->expect(static_cast<int>(call.calls.size()));
  c10::Stream begin = caller;
  if (!call.departures.empty()) {
    begin = on.departures();
    c10::Event ready(caller.device_type());
    ready.record(caller);
    ready.block(begin);
    const c10::StreamGuard guard(begin);
    for (auto& departure : call.departures) departure();
    result.computed(begin);
  }
  gate->enter(*on.queue(begin));
  // If MPI reads device memory, a sender's stream waits, too: it must not change the memory before.
  if (!call.arrivals.empty() || !on.through_host()) result.arrives(gate, std::move(call.arrivals));
  options.gate = std::move(gate);
  return group_->issue(std::move(call.calls), std::move(options));
}

}  // namespace mpi_gdr::torch_binding
