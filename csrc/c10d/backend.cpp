#include "c10d/backend.hpp"

#include <algorithm>
#include <iterator>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "c10d/tensors.hpp"
#include "c10d/timeouts.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "transport/load.hpp"

namespace mpi_gdr::torch_binding {
namespace {

// Null if the call uses no served device.
std::shared_ptr<StreamResult> stream_result(const TensorCall& call) {
  return call.streams ? std::make_shared<StreamResult>(call.streams) : nullptr;
}

}  // namespace

MpiBackend::MpiBackend(int rank, int size, Job::NewGroup made, c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      group_(std::move(made.group)),
      world_ranks_(std::move(made.members)),
      options_(std::move(options)),
      devices_(group_->name(), made.served, made.gpu_aware) {
  group_->on_failure(GroupState::FailureOf::Streams, DeviceStreams::note_failed_group);
}

// Calls no MPI: the garbage collector may run it at any time, on any rank.
MpiBackend::~MpiBackend() = default;

void MpiBackend::setTimeout(std::chrono::milliseconds timeout) {
  with_torch_errors([&] {
    options_->timeout = group_timeout(timeout);
    group_->set_timeout(options_->timeout);
  });
}

std::string MpiBackend::algorithm(const CollectiveSpec& spec) {
  return with_torch_errors([&] {
    std::lock_guard lock(mutex_);  // shutdown() closes the transport
    if (closed_) fail(ErrorCode::InvalidUsage, "algorithm: group ", group_->name(), " has been destroyed");
    return group_->algorithm(spec);
  });
}

OperationPtr MpiBackend::submit(TensorCall& call, IssueOptions& options,
                                const std::shared_ptr<StreamResult>& result) {
  if (!described_.exchange(true, std::memory_order_relaxed)) group_->describe(getGroupDesc());
  options.name = call.name;
  options.detail = std::move(call.detail);
  options.channel = call.accelerator ? Channel::Accelerator : Channel::Collective;
  if (call.timeout > std::chrono::milliseconds::zero()) options.timeout = call.timeout;
  if (extensions_.any()) {
    const TimeoutExtensions::Sum more = extensions_.sum();
    options.timeout = bounded(options.timeout.value_or(group_->timeout()) + more.timeout);
    call.extensions = more.last;
  }
  if (result) result->keep(std::exchange(call.held, {}));
  options.keepalive = std::make_shared<decltype(std::tuple(result, call.held, call.kept))>(
      result, std::move(call.held), std::move(call.kept));
  if (call.streams)
    return call.is_message() ? submit_messages(call, options, *result)
                             : submit_collectives(call, options, *result);
  options.background = call.async;
  return group_->issue(std::move(call.calls), std::move(options));
}

void MpiBackend::issue(MpiWork& work, TensorCall& call, IssueOptions& options, bool accelerator,
                       std::shared_ptr<StreamResult> result) {
  // Registered first: issuing may throw whether or not the engine ends the operation.
  if (hooks_->any())
    options.on_finished = [hooks = hooks_, expected = hooks_->expect(),
                           type = call.type](const Operation& op) mutable {
      hooks->run(std::make_shared<c10d::WorkInfo>(type, op.info().sequence, op.started_at(), op.finished_at(),
                                                  op.finished_at() - op.started_at()),
                 std::move(expected));
    };
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  if (ended_hooks_->any())
    options.on_ended = [hooks = ended_hooks_, keys = work.completion_keys(),
                        timed = timed_.load(std::memory_order_relaxed)](const Operation& op) {
      if (op.error()) return;
      std::optional<float> took;
      if (timed) took = std::chrono::duration<float, std::milli>(op.finished_at() - op.started_at()).count();
      try {
        for (const uint64_t key : keys) hooks->call({key, took});
      } catch (const std::bad_alloc&) {  // no further hook is called
      }
    };
#endif
  if (call.on_accelerator() && !call.is_message()) share_devices(call);
  OperationPtr operation = submit(call, options, result);
  if (call.extensions) extensions_.issued(operation, call.extensions);
  if (accelerator) {
    std::lock_guard lock(mutex_);
    if (on_accelerator_.size() >= most_on_accelerator_) {
      std::erase_if(on_accelerator_, [](const OnAccelerator& o) {
        return o.operation->finished() &&
               (!o.copied_back || o.operation->settled.load(std::memory_order_acquire));
      });
      most_on_accelerator_ = std::max<std::size_t>(64, 2 * on_accelerator_.size());
    }
    on_accelerator_.push_back({operation, !call.epilogues.empty(), result});
  }
  work.bind(std::move(operation), std::move(call.epilogues), std::move(result));
}

void MpiBackend::wait_for_accelerator() {
  std::vector<OnAccelerator> earlier;
  {
    std::lock_guard lock(mutex_);
    earlier = on_accelerator_;
  }
  for (const auto& [operation, copied_back, result] : earlier) {
    // Skips messages, which a peer may send after its barrier, unless a stream already waits for them.
    if (operation->info().channel == Channel::PointToPoint && !(result && result->awaited())) continue;
    operation->has_host_waiter.store(true, std::memory_order_release);
    try {
      group_->engine().wait(*operation);
    } catch (const Error&) {  // reported by its Work
    }
    if (result && !operation->error()) result->synchronize();
    const auto until = Clock::now() + group_->timeout();  // a completer thread or a waiter copies back
    while (copied_back && !operation->settled.load(std::memory_order_acquire)) {
      if (Clock::now() > until)
        fail(ErrorCode::Timeout, operation->describe(), ": its result has not been copied to the device ",
             std::chrono::duration<double>(group_->timeout()).count(), " s after it ended");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void MpiBackend::addEphemeralTimeout(const std::chrono::milliseconds& timeout) {
  extensions_.add(bounded(timeout));
}

void MpiBackend::registerAbortHook(int64_t id, std::function<void()> hook) {
  abort_hooks_->add(id, std::move(hook));
  // Weak: destroying a Python hook takes the GIL, which the progress thread must not take.
  const auto call = [engine = &group_->engine(), hooks = std::weak_ptr(abort_hooks_)] {
    try {
      engine->later([hooks] {
        if (const auto some = hooks.lock()) some->call_once();
      });
    } catch (const std::bad_alloc&) {
    }
  };
  group_->on_failure(GroupState::FailureOf::Hooks, call);
  if (group_->failed()) call();
}

MpiBackend::Profile MpiBackend::profile(const TensorCall& call, bool joins) const {
  if (!profiled()) return {};
  const ProfiledGroup group{group_->name(), getGroupDesc(), rank_, size_, world_ranks_};
  const Channel channel = call.accelerator ? Channel::Accelerator : Channel::Collective;
  const Group::Preview preview = group_->preview(call.calls, channel, call.streams != nullptr);
  const ProfileArguments arguments = profile_arguments(call, group, preview);
  Profile made;
  if (!joins) made.span = std::make_shared<ProfiledSpan>(call.title, call.inputs, arguments);
  made.call = std::make_unique<ProfiledCall>(call, group, preview, arguments);
  return made;
}

// Torch's flight recorder (2.15) and compiled code use the Works of synchronous calls.
bool MpiBackend::returns_works() const {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  if (ended_hooks_->any()) return true;
#endif
  return c10d::allow_inflight_collective_as_graph_input();
}

MpiBackend::WorkPtr MpiBackend::run(TensorCall&& call) {
  return with_torch_errors([&]() -> WorkPtr {
    if (closed_.load(std::memory_order_acquire))
      fail(ErrorCode::InvalidUsage, call.name, ": group ", group_->name(), " has been destroyed");
    bool joins = false;
    if (call.async) {
      const std::lock_guard lock(mutex_);
      joins = block_ && block_->owner == std::this_thread::get_id();
    }
    const Profile observed = profile(call, joins);
    if (joins) {
      std::lock_guard lock(mutex_);
      if (block_) {
        block_->work->add_outputs(call.outputs);
        c10::intrusive_ptr<MpiWork> work = block_->work;
        (call.is_message() ? block_->messages : block_->call).append(std::move(call));
        return work;
      }
    }
    if (call.streams && call.streams->capturing(call.streams->current())) return capture(std::move(call));
    IssueOptions options = call.described();
    auto work = c10::make_intrusive<MpiWork>(group_->engine(), rank_, call.type, std::move(call.outputs),
                                             observed.span, timed_.load(std::memory_order_relaxed));
    issue(*work, call, options, call.accelerator, stream_result(call));
    if (call.async) return work;
    // Waits in the call, without a hand-off to the progress thread. As with NCCL, no Work is returned.
    work->complete();
    if (returns_works()) return work;
    return nullptr;
  });
}

MpiBackend::WorkPtr MpiBackend::message(Tensors& tensors, int peer, int tag, bool send, const char* what) {
  return with_torch_errors([&] {
    at::Tensor& tensor = only(tensors, what, "tensor");
    const bool any = peer == kAnySource;
    const auto type = send ? c10d::OpType::SEND : any ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV;
    TensorCall call(&devices_, what, type, true, c10d::kUnsetTimeout);
    if (any && !send) call.title = "recvAnySource";
    call.inputs = call.outputs = {tensor};
    call.add_message({.send = send, .peer = peer, .tag = tag}, tensor);
    return run(std::move(call));
  });
}

MpiBackend::WorkPtr MpiBackend::send(Tensors& tensors, int dst, int tag) {
  return message(tensors, dst, tag, true, "send");
}

MpiBackend::WorkPtr MpiBackend::recv(Tensors& tensors, int src, int tag) {
  with_torch_errors([&] {  // only recvAnysource() may mean any
    if (src == kAnySource)
      fail(ErrorCode::InvalidUsage, "recv: peer=-1 is not a rank: expected 0..", size_ - 1);
  });
  return message(tensors, src, tag, false, "recv");
}

MpiBackend::WorkPtr MpiBackend::recvAnysource(Tensors& tensors, int tag) {
  return message(tensors, kAnySource, tag, false, "recv");
}

void MpiBackend::startCoalescing() {
  with_torch_errors([&] {
    std::lock_guard lock(mutex_);
    if (block_ && block_->owner != std::this_thread::get_id())
      fail(ErrorCode::InvalidUsage,
           "start_coalescing: another thread has a coalescing block open on this group");
    // An exception left the earlier block open. None of it was sent; waiting for its Work throws.
    if (block_) {
      block_->work->drop();
      log(LogLevel::Warn, "COLL", "a coalescing block of group ", group_->name(), " was never ended; its ",
          block_->call.calls.size() + block_->messages.calls.size(), " operations are dropped");
    }
    const TensorCall empty(&devices_, "coalesced", c10d::OpType::COALESCED, true, c10d::kUnsetTimeout);
    block_.emplace(Block{
        std::this_thread::get_id(), empty, empty,
        c10::make_intrusive<MpiWork>(
            group_->engine(), rank_, c10d::OpType::COALESCED, FewTensors{},
            profiled() ? std::make_shared<ProfiledSpan>(empty.title, at::TensorList{}, ProfileArguments{})
                       : nullptr,
            timed_.load(std::memory_order_relaxed))});
  });
}

MpiBackend::WorkPtr MpiBackend::endCoalescing() {
  return with_torch_errors([&]() -> WorkPtr {
    std::optional<Block> block;
    {
      std::lock_guard lock(mutex_);
      block.swap(block_);
    }
    if (!block) fail(ErrorCode::InvalidUsage, "end_coalescing: no coalescing block is open");
    const struct Dropped {
      MpiWork& work;
      ~Dropped() { work.drop(); }  // no effect if bound
    } dropped{*block->work};
    TensorCall &collectives = block->call, &messages = block->messages;
    const bool only_messages = collectives.calls.empty() && !messages.calls.empty();
    TensorCall& call = only_messages ? messages : collectives;
    if (call.streams && call.streams->capturing(call.streams->current()))
      return capture(std::move(messages.calls.empty() ? collectives : messages));
    IssueOptions options = call.described();
    std::shared_ptr<StreamResult> result = stream_result(call);
    if (!only_messages && !messages.calls.empty()) {
      if (messages.streams != collectives.streams)
        fail(ErrorCode::InvalidUsage,
             "coalesced: collectives and messages on different devices in one block, ",
             "expected one device");
      group_->check(collectives.calls, collectives.name);  // before anything is sent
      IssueOptions first = messages.described();
      options.join = submit(messages, first, result);
      std::move(messages.epilogues.begin(), messages.epilogues.end(), std::back_inserter(call.epilogues));
    }
    issue(*block->work, call, options, collectives.accelerator || messages.accelerator, std::move(result));
    return block->work;
  });
}

uint64_t MpiBackend::getSequenceNumberForGroup() {
  return with_torch_errors(
      [&] { return group_->sequence(Channel::Collective) + group_->sequence(Channel::Accelerator); });
}

c10d::ErrorType MpiBackend::getError() {
  if (!group_->failed()) return c10d::ErrorType::SUCCESS;
  const ErrorCode code = group_->failure_code();
  if (code == ErrorCode::Timeout) return c10d::ErrorType::TIMEOUT;
  return code == ErrorCode::Remote || code == ErrorCode::Mismatch ? c10d::ErrorType::REMOTE_ERROR
                                                                  : c10d::ErrorType::COMM_ERROR;
}

void MpiBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  with_torch_errors([&] { hooks_->set(hook); });
  onCompletionHook_ = std::move(hook);  // hasHooks() reads it
}

void MpiBackend::waitForPendingWorks() {
  with_torch_errors([&] {
    group_->engine().wait_all(*group_);
    const auto patience = group_->timeout();
    if (const int late = hooks_->wait_until_idle(patience))
      fail(ErrorCode::Timeout, "wait_for_pending_works: the completion hook has not returned for ", late,
           " operation(s) ", std::chrono::duration<double>(patience).count(),
           " s after the last of them ended; that is the timeout of group ", group_->name());
  });
}

at::Tensor MpiBackend::allocateTensor(long size, at::TensorOptions options) {
  // Not the member, which fails the group when memory runs out: this call is local to the rank.
  return torch_binding::with_torch_errors([&] { return allocate_tensor(size, options); });
}

bool MpiBackend::supportsTensorAlloc(c10::DeviceIndex device) {
  return torch_binding::with_torch_errors(
      [&] { return device < 0 || (devices_.served() && has_device_memory(device)); });
}

void MpiBackend::abort() {
  // Also ends the wait of a shutdown() that is running.
  with_torch_errors([&] {
    abort_hooks_->call_once();
    if (group_->outstanding() > 0) this_job().note_failure("a group was aborted with operations under way");
    group_->engine().abort(*group_, "the group was aborted by the user");
    this_job().group_aborted(*group_);
  });
}

void MpiBackend::shutdown() {
  with_torch_errors([&] {
    {
      std::lock_guard lock(mutex_);
      if (closed_.exchange(true, std::memory_order_acq_rel)) return;
    }
    group_->engine().close(*group_);
    group_->share_devices(nullptr);
    group_->share_library(nullptr);
    this_job().group_closed(*group_);
  });
}

int MpiBackend::mpi4py_handle() {
  return with_torch_errors([&] {
    if (group_->failed()) fail(ErrorCode::Aborted, "mpi4py_comm: ", group_->failure());
    std::lock_guard lock(mutex_);
    if (closed_) fail(ErrorCode::InvalidUsage, "mpi4py_comm: group ", group_->name(), " has been destroyed");
    return network().handle(group_->library_transport());
  });
}

}  // namespace mpi_gdr::torch_binding
