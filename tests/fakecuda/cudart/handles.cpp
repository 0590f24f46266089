#include "cudart/handles.hpp"

namespace fakecuda {

Handles<Stream, cudaStream_t>& streams() {
  static auto& leaked = *new Handles<Stream, cudaStream_t>("stream");
  return leaked;
}

Handles<Event, cudaEvent_t>& events() {
  static auto& leaked = *new Handles<Event, cudaEvent_t>("event");
  return leaked;
}

Handles<Graph, cudaGraph_t>& graphs() {
  static auto& leaked = *new Handles<Graph, cudaGraph_t>("graph");
  return leaked;
}

Handles<GraphExec, cudaGraphExec_t>& graph_execs() {
  static auto& leaked = *new Handles<GraphExec, cudaGraphExec_t>("executable graph");
  return leaked;
}

StreamPtr make_stream(Gpu& gpu, Stream::Kind kind) {
  auto stream = std::make_shared<Stream>(gpu, kind);
  gpu.streams.push_back(stream);
  return stream;
}

StreamPtr find_stream(cudaStream_t handle) {
  Gpu& gpu = current_gpu();
  if (handle == nullptr || handle == cudaStreamLegacy) return gpu.legacy;
  if (handle != cudaStreamPerThread) return streams().find(handle);
  thread_local std::map<Gpu*, StreamPtr> own;
  StreamPtr& stream = own[&gpu];
  if (!stream) stream = make_stream(gpu, Stream::Kind::Blocking);
  return stream;
}

StreamPtr use_stream(cudaStream_t handle, const char* call) {
  StreamPtr stream = find_stream(handle);
  if (&stream->gpu != &current_gpu()) fault((std::string(call) + ": stream of another device").c_str());
  expect_legacy_allowed(*stream, call);
  return stream;
}

}  // namespace fakecuda
