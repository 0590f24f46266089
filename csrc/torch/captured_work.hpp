// c10d::Work over collectives that were recorded into a graph (Group::capture()). Nothing has run when it is
// returned, and the host never hears of a replay: for the CPU it is complete from the start, and well. What
// counts is wait(), which puts what is captured behind the results; without it, or the Future's, the capture
// cannot be ended, as with NCCL.
//
// Threads: all members may be called from any thread that takes part in the capture.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "torch/stream_result.hpp"

namespace mpigdr::torch_binding {

class CapturedWork : public c10d::Work {
 public:
  CapturedWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs,
               std::shared_ptr<StreamResult> result);
  // What is still kept for the operation, the allocator does not give out again before the capture is over.
  ~CapturedWork() override;

  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(); }
  // The current stream, which has to be one that is captured, waits for the results. Throws ValueError for
  // a timeout: the CPU cannot wait.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // Not marked as overriding: the oldest torch that is served has no such function.
  void blockCurrentStream() { wait(); }
  // Complete, with an event behind the results.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<StreamResult> result_;
};

}  // namespace mpigdr::torch_binding
