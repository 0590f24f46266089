// The start and end of every API function.
#pragma once

#include <cuda_runtime_api.h>

#include "cudart/machine.hpp"
#include "cudart/stream.hpp"

#define FAKECUDA_API extern "C" __attribute__((visibility("default")))

namespace fakecuda {

// The error of cudaGetLastError().
cudaError_t& last_error();
inline cudaError_t report(cudaError_t status) {
  if (status != cudaSuccess) last_error() = status;
  return status;
}

// Whether this call must fail by refuse_after() or inject_failure() (host_work.hpp).
bool refuses(const char* call);
// The error that Settings::fails injects into this call, or 0.
int failure_of(const char* call);
// Any of these errors, or the reason why this process has no CUDA: the driver is too old, or it was forked.
cudaError_t usable(const char* call);

// As cuInit(); every function of the runtime calls it.
void initialise_driver();

// Locks the machine for a call on the current device.
inline Lock lock_machine() {
  Machine& machine = Machine::get();
  Lock lock(machine.mutex);
  machine.changed.wait(lock, [] { return !current_gpu().shut; });
  return lock;
}

}  // namespace fakecuda

// First in every function of the runtime.
#define FAKECUDA_ENTER()                                           \
  if (const cudaError_t unusable = ::fakecuda::usable(__func__)) { \
    return ::fakecuda::report(unusable);                           \
  }
