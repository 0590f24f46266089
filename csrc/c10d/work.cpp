#include "c10d/work.hpp"

#include <c10/core/StreamGuard.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <optional>

#include "c10d/errors.hpp"
#include "c10d/this_job.hpp"
#include "c10d/timeouts.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "job/device_failure.hpp"

namespace mpi_gdr::torch_binding {
namespace {

// torch calls with or without the GIL.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

uint64_t next_completion_key() {
  static std::atomic<uint64_t> last{0};
  return 1 + last.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// No title for the base class, which would make a record function for each Work.
MpiWork::MpiWork(Engine& engine, int rank, c10d::OpType type, FewTensors outputs,
                 std::shared_ptr<ProfiledSpan> span, bool timed)
    : Work(rank, type),
      engine_(engine),
      span_(std::move(span)),
      timed_(timed),
      completion_keys_{next_completion_key()},
      outputs_(std::move(outputs)) {}

uint64_t MpiWork::getCompletionKey() const {
  if (open_.load(std::memory_order_relaxed)) completion_keys_.push_back(next_completion_key());
  return completion_keys_.back();
}

void MpiWork::bind(OperationPtr operation, std::vector<std::function<void()>> epilogues,
                   std::shared_ptr<StreamResult> result) {
  epilogues_ = std::move(epilogues);
  operation_ = std::move(operation);
  result_ = std::move(result);
  plain_ = epilogues_.empty() && !span_;
  drop();
  if (result_)
    operation_->on_finished([op = operation_, result = result_] {
      if (op->error()) return device_operation_failed(op);
      result->copy_message();
      result->release();
    });
  // The span ends with the operation, not when a caller looks.
  if (span_ && operation_->background()) operation_->on_finished([span = span_] { span->end(); });
  // Copies back even if the user drops the Work. A waiter may come first.
  if (!epilogues_.empty() && operation_->background())
    operation_->on_finished(
        [self = c10::intrusive_ptr<MpiWork>::unsafe_reclaim_from_nonowning(this)] { self->settle(); });
}

Operation& MpiWork::operation(const char* what) const {
  if (!operation_)
    with_torch_errors([&] {
      fail(ErrorCode::InvalidUsage, what,
           ": this operation is part of a coalesced block that has not ended; end the block first. If that "
           "was captured into a graph, wait for the block's own work");
    });
  return *operation_;
}

void MpiWork::settle() {
  if (settled()) return;
  if (plain_ && !operation_->error()) return operation_->settled.store(true, std::memory_order_release);
  // Never waits with the GIL held: an epilogue on another thread may need it to release a tensor.
  const WithoutGil no_gil;
  std::lock_guard lock(settle_mutex_);
  if (settled()) return;
  error_ = translate(operation_->error());
  if (error_) {
    this_job().note_failure("an operation failed");
  } else {
    try {
      for (auto& epilogue : epilogues_) epilogue();
    } catch (...) {
      error_ = translate(std::current_exception());
    }
  }
  epilogues_.clear();
  if (span_) span_->end();
  operation_->settled.store(true, std::memory_order_release);
}

bool MpiWork::isCompleted() {
  if (open_.load(std::memory_order_acquire)) return false;  // torch 2.15 asks inside a block
  if (Operation& op = operation("is_completed"); !op.finished()) {
    // A second poll counts as waiting; the first does not, because torch 2.15 polls once after each call.
    if (polled_.exchange(true, std::memory_order_relaxed)) engine_.expect(op);
    return false;
  }
  settle();
  return !result_ || settled_error() || result_->query();
}

std::exception_ptr MpiWork::settled_error() const {
  const_cast<MpiWork*>(this)->settle();
  return error_;
}

bool MpiWork::isSuccess() const { return operation("is_success").finished() && !settled_error(); }

std::exception_ptr MpiWork::exception() const {
  return operation("exception").finished() ? settled_error() : nullptr;
}

int MpiWork::sourceRank() const {
  Operation& op = operation("source_rank");
  const bool is_message = op.info().channel == Channel::PointToPoint;
  // wait() may have blocked only the stream; the host's part names the source.
  if (result_ && is_message) {
    const WithoutGil no_gil;
    op.has_host_waiter.store(true, std::memory_order_release);
    with_torch_errors([&] { engine_.wait(op); });
  }
  const MessageExecution* message = nullptr;
  if (is_message && op.finished() && !op.error()) {
    const Execution* part = &op.part(0);
    if (const auto* gated = dynamic_cast<const GatedExecution*>(part)) part = &gated->inner();
    message = dynamic_cast<const MessageExecution*>(part);
  }
  if (!message)
    with_torch_errors(
        [] { fail(ErrorCode::InvalidUsage, "source_rank: only a finished recv has a source"); });
  return message->source();
}

std::vector<at::Tensor> MpiWork::result() {
  std::lock_guard lock(future_mutex_);
  return at::TensorList(outputs_).vec();
}

bool MpiWork::wait_on_device(const Operation& op, std::chrono::milliseconds timeout) {
  const bool failed = op.group().failed() || (op.finished() && op.error());
  if (failed) return false;
  const DeviceStreams& streams = result_->streams();
  if (streams.capturing(streams.current()))
    fail(ErrorCode::InvalidUsage,
         "wait: the current stream is being captured into a graph, and this operation was "
         "issued outside of it: wait before the capture begins");
  if (timeout != kNoTimeout || Env::get().blocking_wait) return false;
  result_->wait();
  return true;
}

bool MpiWork::wait(std::chrono::milliseconds timeout) {
  if (!result_ && settled()) {
    throw_error();
    return true;
  }
  with_torch_errors([] { this_job().check_process(); });
  return complete(timeout);
}

void MpiWork::throw_error() const {
  if (!error_) return;
  if (operation_->group().failed()) operation_->group().note_failure_thrown();
  std::rethrow_exception(error_);
}

bool MpiWork::complete(std::chrono::milliseconds timeout) {
  Operation& op = operation("wait");
  if (result_ && with_torch_errors([&] { return wait_on_device(op, timeout); })) return true;
  op.has_host_waiter.store(true, std::memory_order_release);
  try {
    engine_.wait(
        op, timeout == kNoTimeout ? std::nullopt : std::optional<std::chrono::nanoseconds>(bounded(timeout)),
        pending_interrupt);
  } catch (const Error&) {  // settle() translates it
  }
  settle();
  throw_error();
  if (result_) {
    result_->wait();
    result_->synchronize();
  }
  return true;
}

void MpiWork::abort() {
  Operation& op = operation("abort");
  engine_.abort(op.group(), op.describe() + " was aborted by the user");
}

c10::intrusive_ptr<c10::ivalue::Future> MpiWork::getFuture() {
  operation("get_future");
  std::unique_lock lock(future_mutex_);
  if (future_) return future_;
  std::vector<c10::Device> devices;  // accelerators, where the Future records events
  for (const at::Tensor& output : outputs_)
    if (!output.is_cpu() && std::find(devices.begin(), devices.end(), output.device()) == devices.end())
      devices.push_back(output.device());
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
  lock.unlock();  // the callback may run here
  if (result_ && !result_->awaits_message() && !operation_->group().failed()) {
    complete_on_device(*future_);
    return future_;
  }
  // Not this->future_: the callback keeps the Future and, by `self`, the tensors.
  operation_->on_finished(
      [self = c10::intrusive_ptr<MpiWork>::unsafe_reclaim_from_nonowning(this), future = future_] {
        try {
          self->settle();
        } catch (...) {  // no memory: the Future must complete
          future->setErrorIfNeeded(std::current_exception());
          return;
        }
        if (self->error_)
          future->setErrorIfNeeded(self->error_);
        else if (self->result_)
          self->complete_on_device(*future);
        else
          future->markCompleted(c10::IValue(self->result()));
      });
  engine_.expect(*operation_);
  return future_;
}

void MpiWork::complete_on_device(c10::ivalue::Future& future) {
  const c10::StreamGuard guard(result_->order_results());  // where the Future records its events
  future.markCompleted(c10::IValue(result()));
}

c10d::WorkResult MpiWork::outcome() const {
  if (!settled_error()) return c10d::WorkResult::SUCCESS;
  try {
    if (operation_->error()) std::rethrow_exception(operation_->error());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::Timeout) return c10d::WorkResult::TIMEOUT;
  } catch (...) {
  }
  return c10d::WorkResult::COMM_ERROR;
}

c10::intrusive_ptr<c10::ivalue::Future> MpiWork::getFutureResult() {
  operation("get_future_result");
  std::unique_lock lock(future_mutex_);
  if (future_result_) return future_result_;
  future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  lock.unlock();
  operation_->on_finished(
      [self = c10::intrusive_ptr<MpiWork>::unsafe_reclaim_from_nonowning(this), future = future_result_] {
        future->markCompleted(c10::IValue(static_cast<std::int64_t>(self->outcome())));
      });
  engine_.expect(*operation_);
  return future_result_;
}

float MpiWork::getDuration() const {
  const Operation& op = operation("get_duration");
  with_torch_errors([&] {
    if (!timed_)
      fail(ErrorCode::InvalidUsage,
           "get_duration: timing was not enabled before this operation; call _enable_collectives_timing() of "
           "the group first");
    if (!op.finished()) fail(ErrorCode::InvalidUsage, "get_duration: the operation has not finished yet");
  });
  return std::chrono::duration<float, std::milli>(op.finished_at() - op.started_at()).count();
}

uint64_t MpiWork::getSequencenumber() const { return operation("get_sequence_number").info().sequence; }

}  // namespace mpi_gdr::torch_binding
