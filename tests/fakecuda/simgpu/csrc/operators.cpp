// torch.ops.simgpu: operations and queries of tests.
#include <dlfcn.h>
#include <torch/library.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "alias.hpp"
#include "cudart/counters.hpp"
#include "cudart/host_work.hpp"
#include "device/library.hpp"
#include "device_memory.hpp"

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

c10::Dict<std::string, int64_t> calls() {
  c10::Dict<std::string, int64_t> all;
  for (const auto& [name, count] : fakecuda::calls()) all.insert(name, static_cast<int64_t>(count));
  return all;
}

std::vector<int64_t> allocations(int64_t device) {
  const auto counts = device_memory().counts(static_cast<c10::DeviceIndex>(device));
  return {counts.allocated, counts.freed, counts.reused};
}

void wind_up() {
  if (started() && !in_bad_fork()) fakecuda::wind_up(std::chrono::seconds(1));
}

// The CUDA device library for the backend: the shipped object files on the software CUDA.
int64_t device_library() {
  static mpi_gdr::DeviceLibrary* const library = [] {
    Dl_info here;
    TORCH_CHECK(dladdr(reinterpret_cast<void*>(&device_library), &here), "simgpu: where is it?");
    const std::string file = here.dli_fname,
                      path = file.substr(0, file.rfind('/') + 1) + "libmpi_gdr_cuda.so";
    void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    TORCH_CHECK(loaded, dlerror());
    const auto function =
        reinterpret_cast<mpi_gdr::DeviceLibraryFunction>(dlsym(loaded, mpi_gdr::kDeviceLibrarySymbol));
    TORCH_CHECK(function, dlerror());
    return function(mpi_gdr::kDeviceInterface);
  }();
  TORCH_CHECK(library, "simgpu: libmpi_gdr_cuda.so has another interface");
  return reinterpret_cast<int64_t>(library);
}

}  // namespace

TORCH_LIBRARY(simgpu, m) {
  m.def("sleep(int ms) -> ()", sleep);
  m.def("fill_later(Tensor(a!) tensor, Scalar value, int ms) -> ()");
  m.def("malloc_free(int bytes) -> ()", malloc_free);
  m.def("refuse_after(int submissions) -> ()", refuse_after);
  m.def("device_wide_waits() -> int", device_wide_waits);
  m.def("calls() -> Dict(str, int)", calls);
  m.def("allocations(int device) -> int[]", allocations);
  m.def("empty_cache() -> ()", [] { device_memory().emptyCache(); });
  m.def("in_bad_fork() -> bool", [] { return in_bad_fork(); });
  m.def("started() -> bool", [] { return started(); });
  m.def("device_count() -> int", [] { return static_cast<int64_t>(device_count()); });
  m.def("wind_up() -> ()", wind_up);
  m.def("device_library() -> int", device_library);
}

TORCH_LIBRARY_IMPL(simgpu, PrivateUse1, m) { m.impl("fill_later", fill_later); }

}  // namespace simgpu
