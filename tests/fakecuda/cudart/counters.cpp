#include "cudart/counters.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

namespace fakecuda {
namespace {

struct Counted {
  std::mutex mutex;
  std::map<std::string_view, std::uint64_t> calls;  // the names are constants of the program
  Traffic traffic;
};

Counted& counted() {
  static auto& leaked = *new Counted;
  return leaked;
}

constexpr std::string_view kWork[] = {
    "cudaMemcpyAsync",     "cudaMemsetAsync",     "cudaLaunchKernel", "launch",
    "launch_steps",        "cudaGraphLaunch",     "cudaEventRecord",  "cudaStreamWaitEvent",
    "cuStreamWaitValue64", "cuStreamWriteValue64"};
constexpr std::string_view kDeviceWide[] = {
    "cudaDeviceSynchronize", "cudaMalloc",           "cudaFree",           "cudaHostAlloc",
    "cudaFreeHost",          "cudaHostRegister",     "cudaHostUnregister", "cudaIpcOpenMemHandle",
    "cudaIpcCloseMemHandle", "cudaFuncGetAttributes"};  // may load the kernel

template <std::size_t n>
std::uint64_t times(const std::string_view (&names)[n]) {
  const std::lock_guard lock(counted().mutex);
  std::uint64_t all = 0;
  for (const std::string_view name : names)
    if (const auto found = counted().calls.find(name); found != counted().calls.end()) all += found->second;
  return all;
}

}  // namespace

std::uint64_t calls_with_work() { return times(kWork); }

std::uint64_t device_wide_waits() { return times(kDeviceWide); }

bool puts_work_on_a_stream(std::string_view call) {
  return std::find(std::begin(kWork), std::end(kWork), call) != std::end(kWork);
}

std::map<std::string, std::uint64_t> calls() {
  const std::lock_guard lock(counted().mutex);
  return {counted().calls.begin(), counted().calls.end()};
}

Traffic traffic() {
  const std::lock_guard lock(counted().mutex);
  return counted().traffic;
}

void count_call(const char* name) {
  const std::lock_guard lock(counted().mutex);
  ++counted().calls[name];
}

void settle_traffic() {
  const Traffic own = std::exchange(own_traffic(), {});
  const std::lock_guard lock(counted().mutex);
  for (std::size_t i = 0; i < own.read.size(); ++i) {
    counted().traffic.read[i] += own.read[i];
    counted().traffic.written[i] += own.written[i];
  }
}

}  // namespace fakecuda
