#include "torch/captured_work.hpp"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "common/error.hpp"
#include "torch/errors.hpp"

namespace mpigdr::torch_binding {

CapturedWork::CapturedWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs,
                           std::shared_ptr<StreamResult> result)
    : Work(rank, type), outputs_(std::move(outputs)), result_(std::move(result)) {
  finish();
}

CapturedWork::~CapturedWork() {
  try {
    result_->leave_to(result_->streams().captured());
  } catch (const std::exception&) {  // the process ends, and the device's runtime has ended before
  }
}

bool CapturedWork::wait(std::chrono::milliseconds timeout) {
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

c10::intrusive_ptr<c10::ivalue::Future> CapturedWork::getFuture() {
  const c10::Stream stream = result_->streams().captured();
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<c10::Device>{stream.device()});
  // On the stream that has the results, so that no other gets into the capture, and would have to be joined.
  const c10::StreamGuard guard(stream);
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> CapturedWork::getFutureResult() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  future->markCompleted(c10::IValue(static_cast<std::int64_t>(c10d::WorkResult::SUCCESS)));
  return future;
}

}  // namespace mpigdr::torch_binding
