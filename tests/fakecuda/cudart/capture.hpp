// Work that is recorded instead of run, and the rules for calls meanwhile. All under the machine's mutex.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "cudart/stream.hpp"

namespace fakecuda {

// What was recorded: nodes in the order of the calls, each behind some of those before it.
struct Graph {
  struct Node {
    std::vector<std::size_t> after;
    Step step;
  };
  std::vector<Node> nodes;
};

// From cudaStreamBeginCapture() to cudaStreamEndCapture(): of one stream, and of those that wait for it.
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  const Stream* origin;
  const Gpu* gpu;
  std::vector<std::weak_ptr<Stream>> streams;
};

// What an event stands for: a place in a stream, or in a capture.
struct Event {
  Gpu* gpu;
  bool recorded = false;
  Mark mark;
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> tip;
};

void begin_capture(const StreamPtr& stream, cudaStreamCaptureMode mode);
// Null: work of another stream was not joined. The capture is over all the same.
std::shared_ptr<Graph> end_capture(const StreamPtr& stream);
void add_node(Stream& stream, Step step);
void record(Lock& lock, Event& event, const StreamPtr& stream);
void wait_event(Lock& lock, const StreamPtr& stream, const Event& event);
// How the calling thread's own calls are judged, as cudaThreadExchangeStreamCaptureMode() sets it.
cudaStreamCaptureMode& thread_capture_mode();

// Faults of a call that may wait for the device, or allocates: while a capture forbids it.
void expect_no_capture(const char* call);
// Faults of a call that asks how far a stream or an event is.
void expect_not_captured(const std::shared_ptr<Capture>& capture, const char* call);
// Faults of the legacy stream's use while a stream that it would wait for is captured.
void expect_legacy_allowed(const Stream& stream, const char* call);

}  // namespace fakecuda
