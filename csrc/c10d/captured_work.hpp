// c10d::Work over collectives that were recorded into a graph (Group::capture()). Nothing has run when it is
// returned, and the host never hears of a replay: for the CPU it is complete from the start, and well. What
// counts is wait(), which puts what is captured behind the results; without it, or the Future's, the capture
// cannot be ended, as with NCCL.
//
// Threads: all members may be called from any thread that takes part in the capture.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/errors.hpp"
#include "c10d/stream_result.hpp"
#include "common/error.hpp"

namespace mpi_gdr::torch_binding {

class CapturedWork : public c10d::Work {
 public:
  CapturedWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs,
               std::shared_ptr<StreamResult> result)
      : Work(rank, type), outputs_(std::move(outputs)), result_(std::move(result)) {
    finish();
  }
  // What is still kept for the operation, the allocator does not give out again before the capture is over.
  ~CapturedWork() override {
    try {
      result_->leave_to(result_->streams().captured());
    } catch (const std::exception&) {  // the process ends, and the device's runtime has ended before
    }
  }

  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(); }
  // The current stream, which has to be one that is captured, waits for the results. Throws ValueError for
  // a timeout: the CPU cannot wait.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    with_torch_errors([&] {
      const DeviceStreams& streams = result_->streams();
      if (!streams.capturing(streams.current()))
        fail(ErrorCode::InvalidUsage,
             "wait: this operation was captured into a graph, and the current stream is not being captured: "
             "wait inside the capture; a replay's results are on the stream of the replay");
      if (timeout != kNoTimeout)
        fail(ErrorCode::InvalidUsage,
             "wait: this operation is captured into a graph, and the CPU cannot wait for it: call wait() "
             "without a timeout");
      result_->wait();
    });
    return true;
  }
  // Not marked as overriding: the oldest torch that is served has no such function.
  void blockCurrentStream() { wait(); }
  // Complete, with an event behind the results.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const c10::Stream stream = result_->streams().captured();
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                           std::vector<c10::Device>{stream.device()});
    // On the stream that has the results: another one would get into the capture, and have to be joined.
    const c10::StreamGuard guard(stream);
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
    future->markCompleted(c10::IValue(static_cast<std::int64_t>(c10d::WorkResult::SUCCESS)));
    return future;
  }

 private:
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<StreamResult> result_;
};

}  // namespace mpi_gdr::torch_binding
