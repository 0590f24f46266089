// torch.ops.simgpu: work of streams that is captured into graphs and replayed, as torch.cuda.CUDAGraph does
// it. One capture at a time; what it allocates comes from a pool that belongs to the graph.
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "device_memory.hpp"

namespace simgpu {

namespace {

struct Graphs {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<mpigdr::SimGraph>> made;
  int64_t last = 0, open = 0;  // the one that is being captured; 0: none
};

Graphs& graphs() {
  static Graphs* const known = new Graphs;
  return *known;
}

int64_t begin_capture() {
  Graphs& all = graphs();
  std::lock_guard lock(all.mutex);
  TORCH_CHECK(!all.open, "simgpu: a capture is under way");
  current_queue().begin_capture();
  all.open = ++all.last;
  device_memory().begin_capture(all.open);
  return all.open;
}

void end_capture() {
  Graphs& all = graphs();
  std::lock_guard lock(all.mutex);
  TORCH_CHECK(all.open, "simgpu: no capture is under way");
  const int64_t id = std::exchange(all.open, 0);
  std::shared_ptr<mpigdr::SimGraph> graph;
  try {
    graph = current_queue().end_capture();
  } catch (...) {
    device_memory().end_capture();
    throw;
  }
  device_memory().end_capture();
  all.made[id] = std::move(graph);
}

void replay(int64_t id) {
  std::shared_ptr<mpigdr::SimGraph> graph;
  {
    Graphs& all = graphs();
    std::lock_guard lock(all.mutex);
    const auto found = all.made.find(id);
    TORCH_CHECK(found != all.made.end(), "simgpu: there is no graph ", id);
    graph = found->second;
  }
  current_queue().replay(*graph);
}

// Its replays are over.
void drop_graph(int64_t id) {
  Graphs& all = graphs();
  {
    std::lock_guard lock(all.mutex);
    all.made.erase(id);
  }
  device_memory().drop_pool(id);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(simgpu, m) {
  m.def("begin_capture() -> int", begin_capture);
  m.def("end_capture() -> ()", end_capture);
  m.def("capturing() -> bool", [] { return current_queue().capturing(); });
  m.def("replay(int graph) -> ()", replay);
  m.def("drop_graph(int graph) -> ()", drop_graph);
}

}  // namespace simgpu
