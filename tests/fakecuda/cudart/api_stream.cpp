// Streams and events.
#include "cudart/api.hpp"
#include "cudart/call_site.hpp"
#include "cudart/handles.hpp"
#include "cudart/work.hpp"

using namespace fakecuda;

FAKECUDA_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  FAKECUDA_ENTER();
  if (flags > cudaStreamNonBlocking) return report(cudaErrorInvalidValue);
  const auto kind = flags == cudaStreamNonBlocking ? Stream::Kind::NonBlocking : Stream::Kind::Blocking;
  const Lock lock = lock_machine();
  *stream = streams().add(make_stream(current_gpu(), kind));
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

// Submitted work still runs.
FAKECUDA_API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  expect_not_captured(streams().take(handle)->capture, "cudaStreamDestroy");
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const StreamPtr stream = find_stream(handle);
  expect_not_captured(stream->capture, "cudaStreamSynchronize");
  expect_legacy_allowed(*stream, "cudaStreamSynchronize");
  wait(lock, mark_of(lock, stream));
  show_host();
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaStreamQuery(cudaStream_t handle) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const StreamPtr stream = find_stream(handle);
  expect_not_captured(stream->capture, "cudaStreamQuery");
  expect_legacy_allowed(*stream, "cudaStreamQuery");
  if (stream->done != stream->submitted) return report(cudaErrorNotReady);
  show_host();
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  const StreamPtr stream = find_stream(handle);
  expect_legacy_allowed(*stream, "cudaStreamIsCapturing");
  *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  FAKECUDA_ENTER();
  if (flags != cudaEventWaitDefault) fault("not modelled: external events");
  Lock lock = lock_machine();
  const StreamPtr stream = find_stream(handle);
  expect_legacy_allowed(*stream, "cudaStreamWaitEvent");
  if (!call_left_out("event")) wait_event(lock, stream, *events().find(event));
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  FAKECUDA_ENTER();
  if (!(flags & cudaEventDisableTiming)) fault("not modelled: events that take the time");
  if (flags & cudaEventInterprocess) fault("not modelled: events of several processes");
  const Lock lock = lock_machine();
  *event = events().add(
      std::make_shared<Event>(Event{.gpu = &current_gpu(), .mark = {}, .capture = {}, .tip = {}}));
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  events().take(event);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const auto event = events().find(handle);
  const StreamPtr stream = find_stream(stream_handle);
  if (event->gpu != &stream->gpu) fault("cudaEventRecord: event and stream of different devices");
  expect_legacy_allowed(*stream, "cudaEventRecord");
  record(lock, *event, stream);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaEventQuery(cudaEvent_t handle) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  expect_no_capture("cudaEventQuery");
  const auto event = events().find(handle);
  expect_not_captured(event->capture, "cudaEventQuery");
  if (!event->mark.reached()) return report(cudaErrorNotReady);
  show_host();
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const auto event = events().find(handle);
  expect_not_captured(event->capture, "cudaEventSynchronize");
  wait(lock, Mark(event->mark));
  show_host();
  return cudaSuccess;
}
