// c10d::Work over an engine operation. Any thread, except bind(), drop(), completion_keys(), add_outputs()
// and, in a block, getCompletionKey(): the issuing thread. The operation keeps its tensors; the progress
// thread never releases them. Epilogues (copies back) run once, before the Work reports completion.
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
#include "c10d/tensors.hpp"
#include "engine/engine.hpp"

namespace mpi_gdr::torch_binding {

class MpiWork : public c10d::Work {
 public:
  // `outputs`: result(), the Future's value. `span`: ends with the operation; may be null.
  MpiWork(Engine& engine, int rank, c10d::OpType type, FewTensors outputs, std::shared_ptr<ProfiledSpan> span,
          bool timed = false);

  // Called once. Until then, inside a coalescing block, the Work cannot be waited for. `result`: the results
  // on a device, to which all work has been submitted; null: the results are on the host.
  void bind(OperationPtr operation, std::vector<std::function<void()>> epilogues,
            std::shared_ptr<StreamResult> result = nullptr);
  // No bind() follows: the block was captured or dropped.
  void drop() { open_.store(false, std::memory_order_release); }
  // All keys that getCompletionKey() has returned in the block, read before bind().
  std::vector<uint64_t> completion_keys() const { return {completion_keys_.begin(), completion_keys_.end()}; }
  // Of an operation that joins the block.
  void add_outputs(at::TensorList outputs) { outputs_.append(outputs.begin(), outputs.end()); }

  // The next three include epilogues: a failed copy back is a failure.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  // Blocks until the data is there; throws the operation's error, each time. As with NCCL, `timeout` fails
  // the group; without it and MPI_GDR_BLOCKING_WAIT only the current stream waits on a served device.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // wait() without the check for a forked child.
  bool complete(std::chrono::milliseconds timeout = kNoTimeout);
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // A c10d::WorkResult as an integer; never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds in the engine. As with NCCL an error unless timing was enabled before the call.
  float getDuration() const override;
  uint64_t getSequencenumber() const override;
  // Unique; new for each call in a block, for torch's flight recorder. Virtual since torch 2.15.
  uint64_t getCompletionKey() const;

 private:
  Operation& operation(const char* what) const;
  // Makes the current stream wait. False if the host must: after a failure, for a timeout or by a setting.
  bool wait_on_device(const Operation& op, std::chrono::milliseconds timeout);
  // Completes the Future at once, as NCCL does, with an event behind the submitted work.
  void complete_on_device(c10::ivalue::Future& future);
  void settle();  // once ended: stores the error or runs epilogues; idempotent
  bool settled() const { return operation_ && operation_->settled.load(std::memory_order_acquire); }
  void throw_error() const;                  // after settle()
  std::exception_ptr settled_error() const;  // calls settle()
  c10d::WorkResult outcome() const;

  Engine& engine_;
  const std::shared_ptr<ProfiledSpan> span_;
  const bool timed_;
  mutable c10::SmallVector<uint64_t, 1> completion_keys_;  // grows while open_, by the block's thread
  std::atomic<bool> open_{true};                           // until bind() or drop()
  std::atomic<bool> polled_{false};                        // isCompleted() has returned false
  OperationPtr operation_;
  std::shared_ptr<StreamResult> result_;
  bool plain_ = false;       // since bind(): settle() has nothing to do after a success
  std::mutex settle_mutex_;  // epilogues_, error_, and writing Operation::settled
  std::vector<std::function<void()>> epilogues_;
  std::exception_ptr error_;  // translated; constant once settled()
  mutable std::mutex future_mutex_;
  FewTensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

}  // namespace mpi_gdr::torch_binding
