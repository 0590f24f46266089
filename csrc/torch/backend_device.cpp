// Calls on a device's tensors: what is submitted to its streams, and in which order (docs/device.md).
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>

#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "torch/backend.hpp"
#include "torch/captured_work.hpp"
#include "torch/device_failure.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpigdr::torch_binding {
namespace {

// What follows a collective, on `stream`, which has its results.
void conclude(Job& job, StreamResult& result, const c10::Stream& stream) {
  const c10::StreamGuard guard(stream);
  const at::NoGradGuard no_grad;  // copies into tensors that may require gradients
  for (auto& epilogue : job.epilogues) epilogue();
  result.computed(stream);
}

}  // namespace

template <typename T>
std::vector<T> MpiBackend::all_gather_on_host(const T& own) {
  struct Buffers {
    T own;
    std::vector<T> all;
  };
  // Kept by the operation, for ever if it fails: others may still write to it.
  const auto buffers =
      std::make_shared<Buffers>(Buffers{own, std::vector<T>(static_cast<std::size_t>(size_))});
  CollectiveCall call;
  call.spec = {Collective::AllGather, rank_, size_};
  call.spec.count = sizeof(T);
  call.input = &buffers->own;
  call.output = buffers->all.data();
  IssueOptions options;
  options.name = "all_gather of what devices share";
  options.channel = Channel::Accelerator;
  options.background = false;
  options.keepalive = buffers;
  const OperationPtr operation = group_->issue({std::move(call)}, std::move(options));
  World::get().engine().wait(*operation);
  return buffers->all;
}

void MpiBackend::share_devices(const Job& job) {
  if (devices_shared_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(sharing_mutex_);
  if (devices_shared_.load(std::memory_order_relaxed)) return;
  const Topology* const topology = group_->topology().get();
  const bool inside = topology && topology->two_level();
  if (size_ > 1 && (group_->node() || inside)) {  // alike on all ranks
    if (job.streams && job.streams->capturing(job.streams->current()))
      fail(ErrorCode::InvalidUsage, job.name,
           ": the current stream is being captured into a graph, and this is the first "
           "collective of group ",
           group_->name(), " on a device, which blocks: run one of it before the capture");
    const std::vector<int> members = inside ? topology->members(topology->node(rank_)) : std::vector<int>{};
    std::shared_ptr<ipc::DeviceNode> node;
    ipc::Ticket ticket;
    std::string why = job.streams ? "MPI_GDR_IPC=off" : "nothing serves these devices";
    try {
      if (!Env::get().node_memory) why = "MPI_GDR_SHM=off";
      if (job.streams && Env::get().device_sharing && Env::get().node_memory) {
        node = inside ? std::make_shared<ipc::DeviceNode>(job.streams->device(), topology->place(rank_),
                                                          static_cast<int>(members.size()), members)
                      : std::make_shared<ipc::DeviceNode>(job.streams->device(), rank_, size_);
        ticket = node->ticket();
      }
    } catch (const Error& e) {
      why = e.what();
      ticket = {};
    }
    std::vector<ipc::Ticket> tickets = all_gather_on_host(ticket);
    if (inside) {
      std::vector<ipc::Ticket> those;
      for (const int r : members) those.push_back(tickets[static_cast<std::size_t>(r)]);
      tickets = std::move(those);
    }
    const char attached = ticket.file >= 0 && node->attach(tickets, why);
    bool all = true;
    for (const char there : all_gather_on_host(attached)) all &= there != 0;
    if (all) {
      group_->share_devices(node);
    } else {
      // Some may have mapped what others share: nobody frees that before all have let go of it.
      const char let_go = !node || node->detach();
      bool free = true;
      for (const char there : all_gather_on_host(let_go)) free &= there != 0;
      if (node && free) node->take_back();
    }
    log(LogLevel::Info, "INIT", "group ", group_->name(), ": devices ",
        all        ? (inside ? "share staging memory inside each node" : "share staging memory")
        : attached ? "of other ranks cannot share memory with theirs"
                   : "share no memory: " + why);
  }
  devices_shared_.store(true, std::memory_order_release);
}

OperationPtr MpiBackend::hand_over_collectives(Job& job, IssueOptions options, StreamResult& result) {
  const DeviceStreams& on = *job.streams;
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
  target.conclude = [&] { conclude(job, result, on.results()); };
  options.stream = &target;
  OperationPtr operation = group_->issue(std::move(job.calls), std::move(options));
  job.epilogues.clear();
  return operation;
}

// The calls take no part in the engine. The Work keeps the tensors until the capture has been put behind
// them; also where an error leaves a part of them in the graph.
MpiBackend::WorkPtr MpiBackend::capture(Job job) {
  if (Env::get().blocking_wait)
    fail(ErrorCode::InvalidUsage, job.name,
         ": the current stream is being captured into a graph, and with MPI_GDR_BLOCKING_WAIT=on the CPU "
         "would wait for the result");
  share_devices(job);
  const DeviceStreams& on = *job.streams;
  const auto result = std::make_shared<StreamResult>(job.streams);
  const std::unique_ptr<DeviceQueue> caller = on.queue(on.current()), captured = on.queue(on.captured());
  DeviceQueue* const queues[] = {captured.get()};
  StreamTarget target{on.device(), queues, *caller, nullptr};
  target.conclude = [&] { conclude(job, *result, on.captured()); };
  result->keep(std::move(job.held));
  auto work = c10::make_intrusive<CapturedWork>(rank_, job.type, std::move(job.outputs), result);
  group_->capture(job.calls, job.name, target, [group = group_.get()] { captured_group_failed(*group); });
  if (!job.async) work->wait();
  return work;
}

OperationPtr MpiBackend::hand_over_messages(Job& job, IssueOptions options, StreamResult& result) {
  const DeviceStreams& on = *job.streams;
  const c10::Stream caller = on.current();
  group_->check(job.calls, job.name);  // before the device is told of them
  auto gate = std::make_shared<Gate>(on.flags());
  gate->expect(static_cast<int>(job.calls.size()));
  c10::Stream begin = caller;
  if (!job.departures.empty()) {
    begin = on.departures();
    c10::Event ready(caller.device_type());
    ready.record(caller);
    ready.block(begin);
    const c10::StreamGuard guard(begin);
    const at::NoGradGuard no_grad;
    for (auto& departure : job.departures) departure();
    result.computed(begin);
  }
  gate->enter(*on.queue(begin));
  // What the library reads from the device must stay until it has; so a sender waits as well, then.
  if (!job.arrivals.empty() || !on.through_host()) result.arrives(gate, std::move(job.arrivals));
  options.gate = std::move(gate);
  return group_->issue(std::move(job.calls), std::move(options));
}

}  // namespace mpigdr::torch_binding
