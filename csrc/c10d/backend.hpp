// The process group: c10d's virtuals on top of an engine group. Signatures are those of torch 2.11, which all
// releases up to 2.15 share.
//
// Threads: as c10d asks, collectives of one group are issued in the same order on all ranks; they may come
// from any thread. A coalescing block belongs to the thread that began it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "c10d/completion_hooks.hpp"
#include "c10d/errors.hpp"
#include "c10d/hooks.hpp"
#include "c10d/profile.hpp"
#include "c10d/tensor_call.hpp"
#include "c10d/this_job.hpp"
#include "c10d/work.hpp"

namespace mpi_gdr::torch_binding {

class MpiBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

  using Options = torch_binding::Options;  // c10d::Backend has a class of this name, too

  MpiBackend(int rank, int size, Job::NewGroup made, c10::intrusive_ptr<Options> options);
  ~MpiBackend() override;

  const std::string getBackendName() const override { return kBackendName; }
  // A copy: c10d writes name and timeout of a child into it when it splits this group.
  OptionsPtr getBackendOptions() override;
  c10::intrusive_ptr<Options> options() const { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  // What the collective would run with, "ring". Throws ValueError for a spec that no call may have.
  std::string algorithm(const CollectiveSpec& spec);
  const Group& group() const { return *group_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(Tensors& tensors, int dst, int tag) override;
  WorkPtr recv(Tensors& tensors, int src, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // All groups count from zero, in step: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;

  // Both are called twice, where the CPU and an accelerator share this backend: the second call finds the
  // group that the first has made, by the store, which c10d makes anew for each child.
  bool supportsSplitting() const override { return true; }
  // A group of some ranks of this one, in the order of `ranks`; null on others. Blocks until all have come.
  BackendPtr split(const StorePtr& store, const std::vector<int>& ranks, const OptionsPtr& opts) override;
  // A group of `size` processes of this job that meet at `store`, each with a rank of its own choice.
  BackendPtr merge(const StorePtr& store, const OptionsPtr& opts, const int& rank, const int& size) override;

  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  // Until all operations have ended, well or not, each at its deadline at the latest, and the hook has
  // returned for each. Throws Timeout if it has not within the group's timeout after that.
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override { timed_.store(true, std::memory_order_relaxed); }

  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  // Devices with an index are accelerators; the CPU has none.
  bool supportsTensorAlloc(c10::DeviceIndex device) override;

  // Virtuals of torch 2.14 and 2.15, which older releases have not: `override` would not compile there. That
  // each is one where it should be, tests/newer_torch shows.
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout);
  // Hooks are called, on a completer thread, when the group fails or is aborted.
  bool supportsAbortHooks() const { return true; }
  void registerAbortHook(int64_t id, std::function<void()> hook);
  void unregisterAbortHook(int64_t id) { abort_hooks_->remove(id); }
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  bool supportsCompletionHooks() const override { return true; }
  // Called by whatever thread ends an operation well, see Hooks.hpp of torch.
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    ended_hooks_->add(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override { ended_hooks_->remove(id); }
#endif

  c10d::ErrorType getError() override;
  // Ends running operations with an error; never needs MPI. Any thread.
  void abort() override;
  // Runs outstanding operations to their end and frees the communicators. Idempotent.
  void shutdown() override;

  // Fortran handle of a communicator over the members, for mpi4py. Not after shutdown().
  int mpi4py_handle();

 private:
  // The free function, for all calls. In a forked child it throws, before any lock is taken. The group fails
  // where a call finds no memory: the other ranks carry it out, and would match this rank's next one with it.
  template <typename F>
  decltype(auto) with_torch_errors(F&& f) const {
    return torch_binding::with_torch_errors([&]() -> decltype(auto) {
      this_job().check_process();
      try {
        return f();
      } catch (const NoMemory& error) {
        group_->fail_with(std::string("the group failed earlier: ") + error.what(), ErrorCode::System);
        group_->note_failure_thrown();
        throw;
      } catch (const Error&) {
        if (group_->failed()) group_->note_failure_thrown();
        throw;
      }
    });
  }
  // One of c10d's, whose arguments `fill` translates; it may give the call another title than `name`.
  template <typename Opts, typename Fill>
  WorkPtr collective(const char* name, c10d::OpType type, const Opts& opts, Fill&& fill) {
    return with_torch_errors([&] {
      TensorCall call(&devices_, name, type, opts.asyncOp, opts.timeout);
      fill(call);
      return run(std::move(call));
    });
  }
  // Shows the call to observers. The span is for its Work; null if it `joins` a block, or none observes.
  struct Profile {
    std::shared_ptr<ProfiledSpan> span;
    std::unique_ptr<ProfiledCall> call;
  };
  Profile profile(const TensorCall& call, bool joins) const;
  WorkPtr run(TensorCall&& call);
  bool asked_for_works() const;
  // Hands what `call` holds to the engine, all but its epilogues; beside a device these, too, and notes in
  // `result` where its results will be.
  OperationPtr hand_over(TensorCall& call, IssueOptions& options,
                         const std::shared_ptr<StreamResult>& result);
  OperationPtr hand_over_collectives(TensorCall& call, IssueOptions& options, StreamResult& result);
  // Makes the call part of the graph into which the current stream of its device is captured, or refuses it.
  WorkPtr capture(TensorCall call);
  OperationPtr hand_over_messages(TensorCall& call, IssueOptions& options, StreamResult& result);
  // The same, and the operation and the epilogues to `work`. `accelerator`: some tensor, also of what the
  // options join, is not in host memory.
  void issue(MpiWork& work, TensorCall& call, IssueOptions& options, bool accelerator,
             std::shared_ptr<StreamResult> result);
  // Before the first collective on an accelerator's tensors: messages of the device's memory are tried, and
  // the ranks of a node tell each other where their devices' staging memory is. Blocks, once.
  void share_devices(const TensorCall& call);
  void try_messages(const TensorCall& call);
  // `inside`: of each node, of which the group has several; null: of the group.
  void share_memory(const TensorCall& call, const Topology* inside);
  // `own` of all ranks, by rank. Blocks.
  template <typename T>
  std::vector<T> all_gather_on_host(const T& own);
  bool all_say_so(bool own);
  // Blocks until all operations on an accelerator's tensors have ended and their results are copied back.
  void wait_for_accelerator();
  WorkPtr message(Tensors& tensors, int peer, int tag, bool send, const char* what);

  BackendPtr make_child(const StorePtr& store, std::vector<int> world_ranks, int rank,
                        const c10d::Backend::Options& opts);
  // Already made over this store and still in use; null: none.
  BackendPtr known_child(const c10d::Store* store);

  const std::shared_ptr<Group> group_;
  const std::vector<int> world_ranks_;  // of the members
  const c10::intrusive_ptr<Options> options_;

  // An open coalescing block. Asynchronous operations and messages join it; a synchronous collective runs at
  // once, since its caller goes on as if it were done.
  struct Block {
    std::thread::id owner;
    TensorCall call, messages;  // messages keep their order among all of the group, collectives theirs
    c10::intrusive_ptr<MpiWork> work;
  };
  const std::shared_ptr<CompletionHooks> hooks_ = std::make_shared<CompletionHooks>();
  std::atomic<bool> timed_{false};
  const std::shared_ptr<Hooks<>> abort_hooks_ = std::make_shared<Hooks<>>();
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  const std::shared_ptr<Hooks<c10d::CompletionHookArgs>> ended_hooks_ =
      std::make_shared<Hooks<c10d::CompletionHookArgs>>();
#endif
  TimeoutExtensions extensions_;

  Devices devices_;  // by what serves them
  std::mutex sharing_mutex_;
  std::atomic<bool> devices_shared_{false};  // or it is known that they cannot be

  std::mutex mutex_;  // all below
  std::optional<Block> block_;
  std::atomic<bool> closed_{false};  // set with it, read without
  struct OnAccelerator {
    OperationPtr operation;
    bool copied_back;                      // by the host
    std::shared_ptr<StreamResult> result;  // null: the device has no part in it
  };
  std::vector<OnAccelerator> on_accelerator_;  // all that may not have ended
  std::size_t most_on_accelerator_ = 64;       // look for those that have ended above this
  std::atomic<bool> described_{false};         // the flight log knows the user's name of the group
  // The stores are held so that no other can come to stand at the same address.
  struct Child {
    StorePtr store;
    c10::weak_intrusive_ptr<c10d::Backend> backend;
  };
  std::vector<Child> children_;
};

}  // namespace mpi_gdr::torch_binding
