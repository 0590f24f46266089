// Captured work, and the rules for calls during a capture. Guarded by the machine's mutex.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "cudart/stream.hpp"

namespace fakecuda {

// Nodes in the order of the calls, each after some earlier ones.
struct Graph {
  struct Node {
    std::vector<std::size_t> after;
    Step step;
    Engine engine;
    std::function<Step()> launched;  // if set, called at each launch; returns the step to run
  };
  std::vector<Node> nodes;
};

// From cudaStreamBeginCapture() to cudaStreamEndCapture(), of one stream and of those that wait for it.
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  const Stream* origin;
  const Gpu* gpu;
  std::vector<std::weak_ptr<Stream>> streams;
};

// A position in a stream or in a capture.
struct Event {
  Gpu* gpu;
  bool recorded = false;
  Mark mark;
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> tip;  // the captured stream's last nodes when recorded
};

void begin_capture(const StreamPtr& stream, cudaStreamCaptureMode mode);
// Ends the capture; null: work of another stream was not joined.
std::shared_ptr<Graph> end_capture(const StreamPtr& stream);
void add_node(Stream& stream, Step step, Engine engine);
void record(Lock& lock, Event& event, const StreamPtr& stream);
void wait_event(Lock& lock, const StreamPtr& stream, const Event& event);
// The mode of cudaThreadExchangeStreamCaptureMode().
cudaStreamCaptureMode& thread_capture_mode();

// Fault if a capture forbids this call, which may wait for the device or allocate.
void expect_no_capture(const char* call);
// Fault for a query of a captured stream or event.
void expect_not_captured(const std::shared_ptr<Capture>& capture, const char* call);
// Fault if the legacy stream would wait for a captured stream.
void expect_legacy_allowed(const Stream& stream, const char* call);

}  // namespace fakecuda
