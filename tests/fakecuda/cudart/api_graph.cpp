// Captures and graphs.
#include <utility>

#include "cudart/api.hpp"
#include "cudart/handles.hpp"

using namespace fakecuda;

FAKECUDA_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  begin_capture(find_stream(stream), mode);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  *graph = nullptr;
  const auto made = end_capture(find_stream(stream));
  if (!made) return report(cudaErrorStreamCaptureUnjoined);
  *graph = graphs().add(made);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  FAKECUDA_ENTER();
  std::swap(*mode, thread_capture_mode());
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                              unsigned long long flags) {
  FAKECUDA_ENTER();
  if (flags != 0) fault("not modelled: flags of cudaGraphInstantiate");
  const Lock lock = lock_machine();
  *exec = graph_execs().add(std::make_shared<GraphExec>(current_gpu(), graphs().find(graph)));
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const auto found = graph_execs().find(exec);
  found->launch(lock, use_stream(stream, "cudaGraphLaunch"));
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  FAKECUDA_ENTER();
  if (nodes) fault("not modelled: the nodes of a graph");
  const Lock lock = lock_machine();
  *count = graphs().find(graph)->nodes.size();
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  graphs().take(graph);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  FAKECUDA_ENTER();
  const Lock lock = lock_machine();
  graph_execs().take(exec);
  return cudaSuccess;
}
