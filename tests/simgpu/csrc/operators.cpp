// torch.ops.simgpu: what tests do to the device, and ask it.
#include <torch/library.h>

#include <chrono>
#include <thread>
#include <vector>

#include "alias.hpp"
#include "cudart/counters.hpp"
#include "cudart/host_work.hpp"
#include "device_memory.hpp"
#include "library.hpp"

namespace simgpu {

namespace {

void nap(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void sleep(int64_t ms) {
  current_queue().enqueue([ms] { nap(ms); });
}

void fill_later(const at::Tensor& tensor, const at::Scalar& value, int64_t ms) {
  enqueue(current_stream(tensor.device().index()), [target = alias(tensor), value, ms] {
    nap(ms);
    target.fill_(value);
  });
}

void malloc_free(int64_t bytes) {
  const DeviceScope scope(current_device());
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc");
  check(cudaFree(memory), "cudaFree");
}

void refuse_after(int64_t submissions) {
  fakecuda::refuse_after(current_device(), static_cast<int>(submissions));
}

int64_t device_wide_waits() { return static_cast<int64_t>(fakecuda::device_wide_waits()); }

std::vector<int64_t> allocations(int64_t device) {
  const auto counts = device_memory().counts(static_cast<c10::DeviceIndex>(device));
  return {counts.allocated,    counts.freed,          counts.reused,    counts.in_use,
          counts.in_use_bytes, counts.reserved_bytes, counts.peak_bytes};
}

void wind_up() {
  if (started() && !in_bad_fork()) fakecuda::wind_up(std::chrono::seconds(1));
}

int64_t address() { return reinterpret_cast<int64_t>(&device_library()); }

}  // namespace

TORCH_LIBRARY(simgpu, m) {
  m.def("sleep(int ms) -> ()", sleep);
  m.def("fill_later(Tensor(a!) tensor, Scalar value, int ms) -> ()");
  m.def("malloc_free(int bytes) -> ()", malloc_free);
  m.def("refuse_after(int submissions) -> ()", refuse_after);
  m.def("device_wide_waits() -> int", device_wide_waits);
  m.def("allocations(int device) -> int[]", allocations);
  m.def("empty_cache() -> ()", [] { device_memory().emptyCache(); });
  m.def("in_bad_fork() -> bool", [] { return in_bad_fork(); });
  m.def("started() -> bool", [] { return started(); });
  m.def("device_count() -> int", [] { return static_cast<int64_t>(in_bad_fork() ? 0 : settings().devices); });
  m.def("wind_up() -> ()", wind_up);
  m.def("device_library() -> int", address);
}

TORCH_LIBRARY_IMPL(simgpu, PrivateUse1, m) { m.impl("fill_later", fill_later); }

}  // namespace simgpu
