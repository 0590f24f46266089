#include "cudart/host_work.hpp"

#include <atomic>
#include <string_view>
#include <utility>

#include "cudart/api.hpp"
#include "cudart/counters.hpp"
#include "cudart/handles.hpp"
#include "cudart/memory.hpp"
#include "cudart/work.hpp"

namespace fakecuda {
namespace {

std::atomic<const char*> failing{nullptr};

}  // namespace

bool refuses(const char* call) {
  const char* const fails = failing.load(std::memory_order_relaxed);
  if (fails && std::string_view(fails) == call) return true;
  if (!current_context() || !puts_work_on_a_stream(call)) return false;
  std::atomic<int>& accepts = current_context()->accepts;
  if (accepts.load(std::memory_order_relaxed) < 0) return false;
  return accepts.fetch_sub(1, std::memory_order_relaxed) == 0;
}

void inject_failure(const char* function) { failing.store(function, std::memory_order_relaxed); }

void refuse_after(int device, int calls) {
  Machine::get().gpu(device).accepts.store(calls, std::memory_order_relaxed);
}

int add_device(const DeviceSettings& settings) { return Machine::get().add(settings); }

void remove_device(int device) {
  Gpu& gpu = Machine::get().gpu(device);
  {
    Lock lock(Machine::get().mutex);
    wait_all(lock, gpu);
    for (const auto& queue : gpu.queues) queue->end(lock);
  }
  Memory::get().forget(device);
}

int kernels_under_way(int device) { return Machine::get().gpu(device).turns.kernels(); }

cudaError_t launch(cudaStream_t handle, std::function<void()> work) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  submit(lock, use_stream(handle, "launch"), by_host(once(std::move(work))));
  return cudaSuccess;
}

cudaError_t launch_steps(cudaStream_t handle, std::function<std::function<Launch::State()>()> launched) {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  const StreamPtr stream = use_stream(handle, "launch_steps");
  const auto step = [launched = std::move(launched)] { return by_host(launched()); };
  submit(lock, stream, stream->capture ? Step() : step());
  if (stream->capture) stream->capture->graph->nodes.back().launched = step;
  return cudaSuccess;
}

void slip_in(cudaStream_t handle, std::function<void()> work) {
  Lock lock(Machine::get().mutex);
  submit(lock, use_stream(handle, "slip_in"), by_host(once(std::move(work))));
}

void wind_up(std::chrono::milliseconds patience) {
  Machine& machine = Machine::get();
  Lock lock(machine.mutex);
  machine.changed.wait_for(lock, patience, [&] { return machine.pending == 0; });
  machine.over = true;
  machine.changed.wait(lock, [&] { return machine.executing == 0; });
}

}  // namespace fakecuda
