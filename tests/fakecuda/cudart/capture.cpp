#include "cudart/capture.hpp"

#include <algorithm>
#include <string>

#include "cudart/settings.hpp"
#include "gpu/fault.hpp"

namespace fakecuda {
namespace {

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& leaked = *new std::vector<std::shared_ptr<Capture>>;
  return leaked;
}

[[noreturn]] void refuse(const char* call, const char* why) {
  fault((std::string(call) + ": " + why).c_str());
}

void merge(std::vector<std::size_t>& tip, const std::vector<std::size_t>& other) {
  tip.insert(tip.end(), other.begin(), other.end());
  std::sort(tip.begin(), tip.end());
  tip.erase(std::unique(tip.begin(), tip.end()), tip.end());
}

// Whether every node is in `tip` or precedes one that is.
bool all_joined(const Graph& graph, const std::vector<std::size_t>& tip) {
  std::vector<bool> joined(graph.nodes.size());
  for (const std::size_t node : tip) joined[node] = true;
  for (std::size_t node = graph.nodes.size(); node-- > 0;)
    if (joined[node])
      for (const std::size_t earlier : graph.nodes[node].after) joined[earlier] = true;
  return std::find(joined.begin(), joined.end(), false) == joined.end();
}

}  // namespace

cudaStreamCaptureMode& thread_capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

void begin_capture(const StreamPtr& stream, cudaStreamCaptureMode mode) {
  if (stream->kind == Stream::Kind::Legacy)
    refuse("cudaStreamBeginCapture", "the legacy stream cannot be captured");
  if (stream->capture) refuse("cudaStreamBeginCapture", "the stream is captured already");
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream.get();
  capture->gpu = &stream->gpu;
  capture->streams.push_back(stream);
  stream->capture = capture;
  captures().push_back(std::move(capture));
}

std::shared_ptr<Graph> end_capture(const StreamPtr& stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) refuse("cudaStreamEndCapture", "the stream is not captured");
  if (capture->origin != stream.get()) refuse("cudaStreamEndCapture", "another stream began the capture");
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    refuse("cudaStreamEndCapture", "another thread began the capture");
  const bool whole = all_joined(*capture->graph, stream->tip);
  for (const auto& captured : capture->streams)
    if (const StreamPtr it = captured.lock()) {
      it->capture = nullptr;
      it->tip.clear();
    }
  std::erase(captures(), capture);
  return whole ? capture->graph : nullptr;
}

void add_node(Stream& stream, Step step, Engine engine) {
  auto& nodes = stream.capture->graph->nodes;
  nodes.push_back({stream.tip, std::move(step), engine});
  stream.tip = {nodes.size() - 1};
}

void record(Lock& lock, Event& event, const StreamPtr& stream) {
  event.recorded = true;
  event.capture = stream->capture;
  event.tip = stream->tip;
  event.mark = {};
  if (!stream->capture) event.mark = mark_of(lock, stream);
}

void wait_event(Lock& lock, const StreamPtr& stream, const Event& event) {
  if (!event.recorded) return;
  if (!stream->capture && !event.capture) {
    enqueue(lock, stream, {event.mark}, nullptr);
    return;
  }
  const bool over =
      event.capture && std::find(captures().begin(), captures().end(), event.capture) == captures().end();
  if (!event.capture) refuse("cudaStreamWaitEvent", "the event was recorded before the capture");
  if (over) refuse("cudaStreamWaitEvent", "the event was recorded in a capture that is over");
  if (stream->capture && stream->capture != event.capture)
    refuse("cudaStreamWaitEvent", "the event was recorded in another capture");
  if (stream->kind == Stream::Kind::Legacy)
    refuse("cudaStreamWaitEvent", "the legacy stream cannot be captured");
  if (!stream->capture) {
    stream->capture = event.capture;
    event.capture->streams.push_back(stream);
  }
  merge(stream->tip, event.tip);
}

void expect_no_capture(const char* call) {
  const cudaStreamCaptureMode mine = thread_capture_mode();
  if (mine == cudaStreamCaptureModeRelaxed) return;
  for (const auto& capture : captures()) {
    if (kOneProcess && capture->gpu != &current_gpu()) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool consumed = own || mine == cudaStreamCaptureModeGlobal;
    const bool strict =
        own ? capture->mode != cudaStreamCaptureModeRelaxed : capture->mode == cudaStreamCaptureModeGlobal;
    if (consumed && strict) refuse(call, "not while a stream is captured");
  }
}

void expect_not_captured(const std::shared_ptr<Capture>& capture, const char* call) {
  if (capture) refuse(call, "not of what is captured");
}

void expect_legacy_allowed(const Stream& stream, const char* call) {
  if (stream.kind != Stream::Kind::Legacy) return;
  for (const auto& capture : captures())
    for (const auto& captured : capture->streams)
      if (const StreamPtr it = captured.lock();
          it && it->kind == Stream::Kind::Blocking && it->capture && &it->gpu == &stream.gpu)
        refuse(call, "the legacy stream would wait for one that is captured");
}

}  // namespace fakecuda
