// c10d::Work over an engine operation.
//
// Threads: all members may be called from any thread. The tensors of an operation live as long as it needs
// them; the last reference is dropped by a waiter, the issuer or a completer thread, never by the progress
// thread. What has to be done after the operation (copies back into non-contiguous tensors) is done exactly
// once, before anyone sees it completed.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/profile.hpp"
#include "c10d/stream_result.hpp"
#include "engine/engine.hpp"

namespace mpi_gdr::torch_binding {

class MpiWork : public c10d::Work {
 public:
  // `outputs` is result() and the value of the Future. `span`: what the profiler is shown, ended with the
  // operation; null: nothing. `timed`: getDuration() answers.
  MpiWork(Engine& engine, int rank, c10d::OpType type, std::vector<at::Tensor> outputs,
          std::shared_ptr<ProfiledSpan> span, bool timed = false);

  // Gives the Work its operation and what follows it. Called once; before that (inside a coalescing block)
  // nothing may be waited for.
  // `result`: where its results are on a device, all of whose part has been submitted; null: on the host.
  void bind(OperationPtr operation, std::vector<std::function<void()>> epilogues,
            std::shared_ptr<StreamResult> result = nullptr);
  // There will be no bind(): the block that this was for was captured, or not carried out.
  void drop() { open_.store(false, std::memory_order_release); }
  // All that getCompletionKey() has told, after bind() was called.
  std::vector<uint64_t> completion_keys() const { return completion_keys_; }
  // For a coalesced operation: also returns these tensors.
  void add_outputs(const std::vector<at::Tensor>& outputs);

  // These three tell of the results too: a copy back that failed is a failure of the operation.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  // Blocks until the data is there; throws the operation's error. Any number of times, from any thread. As
  // with NCCL, after `timeout` the operation has failed, and its group with it; and on a served device the
  // current stream waits instead, unless there is a timeout or MPI_GDR_BLOCKING_WAIT.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // The same where it is known that this is no forked child.
  bool complete(std::chrono::milliseconds timeout = kNoTimeout);
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // A Future of c10d::WorkResult as an integer; never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds from when the engine began to work on it until it was over. As with NCCL an error unless the
  // group's timing was enabled before the call.
  float getDuration() const override;
  uint64_t getSequencenumber() const override;
  // No other Work's. Inside a coalescing block each call of this has another, since torch's flight recorder
  // asks once for each operation of the block. A virtual of torch 2.15, and none before.
  uint64_t getCompletionKey() const;

 private:
  Operation& operation(const char* what) const;
  // The calling thread's stream waits. False: the host has to, to hear of an error or by choice.
  bool wait_on_device(const Operation& op, std::chrono::milliseconds timeout);
  // As NCCL's: complete at once, with an event behind what was submitted.
  void complete_on_device(c10::ivalue::Future& future);
  // The operation is over: epilogues. Idempotent. All that asks the base class for its state is overridden.
  void settle();
  bool settled() const { return operation_ && operation_->settled.load(std::memory_order_acquire); }
  void throw_error() const;  // if there is one; after settle()
  // settle() for the const ones among c10d's virtuals.
  std::exception_ptr settled_error() const;
  c10d::WorkResult outcome() const;

  Engine& engine_;
  const std::shared_ptr<ProfiledSpan> span_;
  const bool timed_;
  mutable std::vector<uint64_t> completion_keys_;  // grows while open_, by the thread whose block it is
  std::atomic<bool> open_{true};                   // waits for bind() or drop()
  std::atomic<bool> asked_{false};                 // isCompleted() has said no
  OperationPtr operation_;
  std::shared_ptr<StreamResult> result_;
  std::mutex settle_mutex_;  // epilogues_, and setting Operation::settled
  std::vector<std::function<void()>> epilogues_;
  std::exception_ptr error_;  // translated; under settle_mutex_ until settled(), and constant then
  mutable std::mutex future_mutex_;
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

}  // namespace mpi_gdr::torch_binding
