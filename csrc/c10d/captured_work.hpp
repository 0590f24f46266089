// c10d::Work over collectives recorded into a graph (Group::capture()). For the CPU it is complete at once;
// replays are invisible to the host. As with NCCL the capture can end only after wait(), or a Future's wait,
// has ordered it behind the results. Used by any thread that takes part in the capture.
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
  // Kept memory is not reused before the capture is over.
  ~CapturedWork() override {
    try {
      result_->release_to(result_->streams().captured());
    } catch (const std::exception&) {  // the device's runtime has ended
    }
  }

  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(); }
  // The current stream, which must be captured, waits. Throws ValueError for a timeout: the CPU cannot wait.
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
  void blockCurrentStream() { wait(); }  // no override: the oldest supported torch lacks it
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const c10::Stream stream = result_->streams().captured();
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                           std::vector<c10::Device>{stream.device()});
    const c10::StreamGuard guard(stream);  // another stream would join the capture
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
