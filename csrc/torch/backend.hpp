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

#include "torch/job.hpp"
#include "torch/options.hpp"
#include "torch/work.hpp"
#include "torch/world.hpp"

namespace mpigdr::torch_binding {

class MpiBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  MpiBackend(int rank, int size, World::NewGroup made, c10::intrusive_ptr<Options> options);
  ~MpiBackend() override;

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  c10::intrusive_ptr<Options> options() const { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(Tensors& tensors, int dst, int tag) override;
  WorkPtr recv(Tensors& tensors, int src, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // Not yet served; each throws NotImplementedError naming itself.
  WorkPtr allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) override;
  WorkPtr gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // All groups count from zero, in step: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;

  c10d::ErrorType getError() override;
  // Ends running operations with an error; never needs MPI. Any thread.
  void abort() override;
  // Runs outstanding operations to their end and frees the communicators. Idempotent.
  void shutdown() override;

  // Fortran handle of a communicator over the members, for mpi4py. Not after shutdown().
  int mpi4py_handle();

 private:
  WorkPtr run(Job job);
  // Hands what `job` holds to the engine, and the operation to `work`.
  void issue(MpiWork& work, Job& job, IssueOptions options);
  WorkPtr message(Tensors& tensors, int peer, int tag, bool send, const char* what);

  const std::shared_ptr<Group> group_;
  const int mpi4py_handle_;
  const c10::intrusive_ptr<Options> options_;

  // An open coalescing block. Asynchronous operations and messages join it; a synchronous collective runs at
  // once, since its caller goes on as if it were done.
  struct Block {
    std::thread::id owner;
    Job job;
    c10::intrusive_ptr<MpiWork> work;
  };
  std::mutex mutex_;  // all below
  std::optional<Block> block_;
  bool closed_ = false;
  std::atomic<bool> described_{false};  // the flight log knows the user's name of the group
};

}  // namespace mpigdr::torch_binding
