// What all functions of the API begin and end with.
#pragma once

#include <cuda_runtime_api.h>

#include "cudart/machine.hpp"
#include "cudart/stream.hpp"

#define FAKECUDA_API extern "C" __attribute__((visibility("default")))

namespace fakecuda {

// What cudaGetLastError() tells the calling thread of.
cudaError_t& last_error();
inline cudaError_t report(cudaError_t status) {
  if (status != cudaSuccess) last_error() = status;
  return status;
}

// This call is to fail, once (host_work.hpp).
bool refuses(const char* call);
// Other than 0: an error that this call is to return, because it was asked for (Settings::fails).
int failure_of(const char* call);
// Other than Success: the same, or there is no CUDA in this process, because the driver is too old or this is
// a fork.
cudaError_t usable(const char* call);

// As cuInit(); every function of the runtime does so.
void initialise_driver();

// The machine, locked, for a call on behalf of the current device.
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
