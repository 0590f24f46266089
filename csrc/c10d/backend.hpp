// The process group: implements c10d's virtuals of torch 2.11 to 2.15 with an engine group. Thread-safe; all
// ranks issue collectives in the same order. A coalescing block belongs to the thread that began it.
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
#include "c10d/memory.hpp"
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

  using Options = torch_binding::Options;  // hides c10d::Backend::Options

  MpiBackend(int rank, int size, Job::NewGroup made, c10::intrusive_ptr<Options> options);
  ~MpiBackend() override;

  const std::string getBackendName() const override { return kBackendName; }
  // A copy: for a split c10d writes the child's name and timeout into it.
  OptionsPtr getBackendOptions() override { return c10::make_intrusive<Options>(*options_); }
  c10::intrusive_ptr<Options> options() const { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  // The algorithm that the collective would run, "ring". Throws ValueError for an illegal spec.
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

  void setSequenceNumberForGroup() override {}  // every group counts from zero
  uint64_t getSequenceNumberForGroup() override;

  // c10d calls split() or merge() twice if the CPU and an accelerator share this backend. The second call
  // returns the first one's child, found by its store: c10d makes a store for each child.
  bool supportsSplitting() const override { return true; }
  // A group of `ranks`, in that order; blocks until all of them have called. Null on other ranks.
  BackendPtr split(const StorePtr& store, const std::vector<int>& ranks, const OptionsPtr& opts) override;
  // A group of `size` processes of the job that meet at `store`. Blocks until all have called.
  BackendPtr merge(const StorePtr& store, const OptionsPtr& opts, const int& rank, const int& size) override;

  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  // Blocks until all operations have ended, at their deadlines at the latest, and the hook has returned for
  // each. Throws Timeout if the hook then takes longer than the group's timeout.
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override { timed_.store(true, std::memory_order_relaxed); }

  std::shared_ptr<c10::Allocator> getMemAllocator() override { return group_allocator(); }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  // A device with an index is an accelerator; the CPU has none.
  bool supportsTensorAlloc(c10::DeviceIndex device) override;

  // Virtual since torch 2.14 or 2.15; no `override`, for older releases. Tested by tests/newer_torch.
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout);
  // Each hook runs once: in abort(), or on a completer thread when the group fails.
  bool supportsAbortHooks() const { return true; }
  void registerAbortHook(int64_t id, std::function<void()> hook);
  void unregisterAbortHook(int64_t id) { abort_hooks_->remove(id); }
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  bool supportsCompletionHooks() const override { return true; }
  // Called on the thread that ends an operation, if it succeeded; see torch's Hooks.hpp.
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    ended_hooks_->add(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override { ended_hooks_->remove(id); }
#endif

  c10d::ErrorType getError() override;
  void abort() override;  // fails running operations without MPI; any thread
  // Runs outstanding operations to their end, then frees the communicators. Idempotent.
  void shutdown() override;

  int mpi4py_handle();  // Fortran handle of the communicator; valid until shutdown()

 private:
  // Throws in a forked child, before taking a lock. NoMemory fails the group: the other ranks run the call,
  // which must not match this rank's next one.
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
  // For c10d's collectives: `fill` translates the arguments, and may set another title.
  template <typename Opts, typename Fill>
  WorkPtr collective(const char* name, c10d::OpType type, const Opts& opts, Fill&& fill) {
    return with_torch_errors([&] {
      TensorCall call(&devices_, name, type, opts.asyncOp, opts.timeout);
      fill(call);
      return run(std::move(call));
    });
  }
  struct Profile {  // both null without a profiler; no span if the call joins a block
    std::shared_ptr<ProfiledSpan> span;
    std::unique_ptr<ProfiledCall> call;
  };
  Profile profile(const TensorCall& call, bool joins) const;
  WorkPtr run(TensorCall&& call);
  bool returns_works() const;
  // Issues the call; on a device also its epilogues, and `result` records where the results will be.
  OperationPtr submit(TensorCall& call, IssueOptions& options, const std::shared_ptr<StreamResult>& result);
  OperationPtr submit_collectives(TensorCall& call, IssueOptions& options, StreamResult& result);
  // Records the call into the graph that the current stream is captured into, or throws.
  WorkPtr capture(TensorCall call);
  OperationPtr submit_messages(TensorCall& call, IssueOptions& options, StreamResult& result);
  // Calls submit() and binds `work`. `accelerator`: a tensor, maybe of a joined message, is not on the host.
  void issue(MpiWork& work, TensorCall& call, IssueOptions& options, bool accelerator,
             std::shared_ptr<StreamResult> result);
  // Before the first collective on an accelerator: tries messages of device memory, and sets up NCCL inside a
  // node. Before the first that NCCL does not carry: exchanges handles of staging memory there. Blocks.
  // Postponed while a stream of any rank waits for a message.
  void share_devices(const TensorCall& call);
  void try_messages(const TensorCall& call);
  // Whether NCCL is used: inside each node of topology `inside`, or in the whole group if that is null.
  bool share_library(const TensorCall& call, const Topology* inside);
  void share_memory(const TensorCall& call, const Topology* inside);
  std::vector<int> members_here(const Topology* inside) const;
  // The memory that these ranks share for their devices, or for NCCL. Throws System if they share none.
  ipc::Areas areas(const std::vector<int>& members, bool of_library) const;
  bool all_ranks_agree(bool own) { return first_reason(own ? "" : "no").empty(); }  // blocks
  bool all_empty_caches(const TensorCall& call);  // torch's, of device memory; blocks
  // "rank 2: ..." of the first rank whose reason is not empty, cut to 239 bytes; "": none. Blocks.
  std::string first_reason(const std::string& own);
  // Blocks until collectives on an accelerator, and messages that streams wait for, are over and copied back.
  void wait_for_accelerator();
  WorkPtr message(Tensors& tensors, int peer, int tag, bool send, const char* what);

  BackendPtr make_child(const StorePtr& store, std::vector<int> world_ranks, int rank,
                        const c10d::Backend::Options& opts);
  BackendPtr find_child(const c10d::Store* store);  // null: no live child over it

  const std::shared_ptr<Group> group_;
  const std::vector<int> world_ranks_;  // by rank of the group
  const c10::intrusive_ptr<Options> options_;

  // Collects asynchronous collectives and messages. A synchronous one runs at once, as its caller expects.
  struct Block {
    std::thread::id owner;
    TensorCall call, messages;  // each in order of issue
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

  Devices devices_;
  std::mutex sharing_mutex_;
  enum class Sharing : std::uint8_t { Nothing, Library, Done };  // set up by share_devices() so far
  std::atomic<Sharing> sharing_{Sharing::Nothing};

  std::mutex mutex_;  // guards all below, except atomics
  std::optional<Block> block_;
  std::atomic<bool> closed_{false};  // written with mutex_
  struct OnAccelerator {
    OperationPtr operation;
    bool copied_back;                      // the host copies the result to the device
    std::shared_ptr<StreamResult> result;  // null: the host fallback
  };
  std::vector<OnAccelerator> on_accelerator_;  // may include ended ones
  std::size_t most_on_accelerator_ = 64;       // remove ended ones above this size
  std::atomic<bool> described_{false};         // the description was passed to observers
  struct Child {                               // owns the stores: their addresses are keys
    StorePtr store;
    c10::weak_intrusive_ptr<c10d::Backend> backend;
  };
  std::vector<Child> children_;
};

}  // namespace mpi_gdr::torch_binding
