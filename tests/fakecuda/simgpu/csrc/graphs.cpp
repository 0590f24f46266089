// torch.ops.simgpu: captures streams into graphs and replays them like torch.cuda.CUDAGraph. One capture at a
// time; its allocations come from a pool of the graph.
#include <torch/library.h>

#include <map>
#include <mutex>
#include <utility>

#include "device_memory.hpp"

namespace simgpu {

namespace {

struct Graphs {
  std::mutex mutex;
  std::map<int64_t, cudaGraphExec_t> made;
  int64_t last = 0, open = 0;  // being captured; 0: none
};

Graphs& graphs() {
  static Graphs* const known = new Graphs;
  return *known;
}

int64_t begin_capture() {
  Graphs& all = graphs();
  std::lock_guard lock(all.mutex);
  TORCH_CHECK(!all.open, "simgpu: a capture is under way");
  const DeviceScope scope(current_device());
  check(cudaStreamBeginCapture(current_queue().native(), cudaStreamCaptureModeGlobal),
        "cudaStreamBeginCapture");
  all.open = ++all.last;
  device_memory().begin_capture(all.open);
  return all.open;
}

void end_capture() {
  Graphs& all = graphs();
  std::lock_guard lock(all.mutex);
  TORCH_CHECK(all.open, "simgpu: no capture is under way");
  const int64_t id = std::exchange(all.open, 0);
  const DeviceScope scope(current_device());
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(current_queue().native(), &graph);
  device_memory().end_capture();
  check(status, "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&all.made[id], graph, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

void replay(int64_t id) {
  Graphs& all = graphs();
  std::lock_guard lock(all.mutex);
  const auto found = all.made.find(id);
  TORCH_CHECK(found != all.made.end(), "simgpu: there is no graph ", id);
  const DeviceScope scope(current_device());
  check(cudaGraphLaunch(found->second, current_queue().native()), "cudaGraphLaunch");
}

// Call after its replays have ended.
void drop_graph(int64_t id) {
  Graphs& all = graphs();
  {
    std::lock_guard lock(all.mutex);
    if (const auto graph = all.made.extract(id))
      check(cudaGraphExecDestroy(graph.mapped()), "cudaGraphExecDestroy");
  }
  device_memory().drop_pool(id);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(simgpu, m) {
  m.def("begin_capture() -> int", begin_capture);
  m.def("end_capture() -> ()", end_capture);
  m.def("replay(int graph) -> ()", replay);
  m.def("drop_graph(int graph) -> ()", drop_graph);
}

}  // namespace simgpu
