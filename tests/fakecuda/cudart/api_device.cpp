// Devices, contexts of the runtime, and errors.
#include <atomic>
#include <cstdio>
#include <cstring>

#include "cudart/api.hpp"
#include "cudart/capture.hpp"
#include "cudart/counters.hpp"
#include "cudart/memory.hpp"
#include "cudart/settings.hpp"
#include "gpu/fault.hpp"

using namespace fakecuda;

namespace fakecuda {

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

int failure_of(const char* call) {
  count_call(call);
  if (refuses(call)) return cudaErrorUnknown;
  const Settings& settings = Settings::get();
  if (settings.fails != call) return 0;
  static std::atomic<std::uint64_t> calls{0};
  const std::uint64_t number = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  return settings.fails_at == 0 || settings.fails_at == number ? static_cast<int>(settings.fails_with) : 0;
}

cudaError_t usable(const char* call) {
  if (const int error = failure_of(call)) return static_cast<cudaError_t>(error);
  if (Settings::get().driver / 1000 * 1000 < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  initialise_driver();
  return Machine::get().forked() ? cudaErrorInitializationError : cudaSuccess;
}

}  // namespace fakecuda

namespace {

bool exists(int device) { return device >= 0 && device < Machine::get().devices(); }

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
#define FAKECUDA_ERROR(name, text) \
  ErrorText { name, #name, text }
constexpr ErrorText kErrors[] = {
    FAKECUDA_ERROR(cudaSuccess, "no error"),
    FAKECUDA_ERROR(cudaErrorInvalidValue, "invalid argument"),
    FAKECUDA_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    FAKECUDA_ERROR(cudaErrorInitializationError, "initialization error"),
    FAKECUDA_ERROR(cudaErrorInsufficientDriver,
                   "CUDA driver version is insufficient for CUDA runtime version"),
    FAKECUDA_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    FAKECUDA_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    FAKECUDA_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    FAKECUDA_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    FAKECUDA_ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    FAKECUDA_ERROR(cudaErrorNotReady, "device not ready"),
    FAKECUDA_ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the memory is already mapped"),
    FAKECUDA_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    FAKECUDA_ERROR(cudaErrorNotSupported, "operation not supported"),
    FAKECUDA_ERROR(cudaErrorUnknown, "unknown error"),
    FAKECUDA_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
};

const ErrorText* find_text(cudaError_t error) {
  for (const ErrorText& known : kErrors)
    if (known.error == error) return &known;
  return nullptr;
}

}  // namespace

FAKECUDA_API const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* const known = find_text(error);
  return known ? known->name : "unrecognized error code";
}

FAKECUDA_API const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* const known = find_text(error);
  return known ? known->text : "unrecognized error code";
}

FAKECUDA_API cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error();
  last_error() = cudaSuccess;
  return error;
}

FAKECUDA_API cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  FAKECUDA_ENTER();
  *count = Machine::get().devices();
  return *count ? cudaSuccess : report(cudaErrorNoDevice);
}

FAKECUDA_API cudaError_t cudaGetDevice(int* device) {
  FAKECUDA_ENTER();
  *device = current_context() ? current_context()->index : 0;
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaSetDevice(int device) {
  FAKECUDA_ENTER();
  if (!exists(device)) return report(cudaErrorInvalidDevice);
  current_context() = &Machine::get().gpu(device);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  FAKECUDA_ENTER();
  if (!exists(device) || !exists(peer)) return report(cudaErrorInvalidDevice);
  *can = device != peer && Settings::get().peers != 0;
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  FAKECUDA_ENTER();
  if (!exists(device)) return report(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = static_cast<int>(Machine::get().gpu(device).room.count());
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = static_cast<int>(kOneMultiprocessor.threads);
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    default:
      fault("not modelled: cudaDeviceGetAttribute");
  }
}

FAKECUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  FAKECUDA_ENTER();
  if (!exists(device)) return report(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "software GPU");
  std::memset(properties->uuid.bytes, 1 + device % 255, sizeof properties->uuid.bytes);
  std::memcpy(properties->uuid.bytes, &device, sizeof device);
  properties->major = 9;
  properties->totalGlobalMem = Settings::get().bytes;
  properties->multiProcessorCount = static_cast<int>(Machine::get().gpu(device).room.count());
  properties->maxThreadsPerMultiProcessor = static_cast<int>(kOneMultiprocessor.threads);
  properties->warpSize = 32;
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAKECUDA_ENTER();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaDeviceSynchronize() {
  FAKECUDA_ENTER();
  Lock lock = lock_machine();
  expect_no_capture("cudaDeviceSynchronize");
  wait_all(lock, current_gpu());
  return cudaSuccess;
}
