// Memory of devices and of the host, and its sharing between processes.
#include <cstring>

#include "cudart/api.hpp"
#include "cudart/capture.hpp"
#include "cudart/memory.hpp"
#include "cudart/settings.hpp"

using namespace fakecuda;

namespace {

// CUDA frees memory only when its whole device is idle.
void rest(const char* call, const void* memory) {
  const int device = Memory::get().device_of(memory);
  Lock lock = lock_machine();
  expect_no_capture(call);
  if (device >= 0) wait_shutting_out(lock, Machine::get().gpu(device));
}

// Allocation may wait for the device as well.
void allocating(const char* call) {
  Lock lock = lock_machine();
  expect_no_capture(call);
  if (Settings::get().waits) wait_shutting_out(lock, current_gpu());
}

}  // namespace

FAKECUDA_API cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  FAKECUDA_ENTER();
  allocating("cudaMalloc");
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  *memory = Memory::get().allocate(current_gpu().index, bytes);
  return *memory ? cudaSuccess : report(cudaErrorMemoryAllocation);
}

FAKECUDA_API cudaError_t cudaFree(void* memory) {
  FAKECUDA_ENTER();
  if (!memory) return cudaSuccess;
  rest("cudaFree", memory);
  Memory::get().free(memory, Range::Kind::Device);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  FAKECUDA_ENTER();
  allocating("cudaHostAlloc");
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  *memory = Memory::get().allocate_pinned(current_gpu().index, bytes, flags & cudaHostAllocPortable);
  return *memory ? cudaSuccess : report(cudaErrorMemoryAllocation);
}

FAKECUDA_API cudaError_t cudaFreeHost(void* memory) {
  FAKECUDA_ENTER();
  if (!memory) return cudaSuccess;
  rest("cudaFreeHost", memory);
  Memory::get().free(memory, Range::Kind::Pinned);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  FAKECUDA_ENTER();
  allocating("cudaHostRegister");
  const bool everywhere = flags & cudaHostRegisterPortable;
  if (Memory::get().register_host(memory, bytes, current_gpu().index, everywhere)) return cudaSuccess;
  return report(cudaErrorHostMemoryAlreadyRegistered);
}

FAKECUDA_API cudaError_t cudaHostUnregister(void* memory) {
  FAKECUDA_ENTER();
  allocating("cudaHostUnregister");
  Memory::get().unregister_host(memory);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaHostGetDevicePointer(void** seen, void* memory, unsigned flags) {
  FAKECUDA_ENTER();
  const auto range = Memory::get().find(memory, 1);
  const bool host = range && (range->kind == Range::Kind::Pinned || range->kind == Range::Kind::Registered);
  if (flags != 0 || !host) return report(cudaErrorInvalidValue);
  *seen = static_cast<std::byte*>(memory) + (range->seen ? range->seen - range->begin : 0);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  FAKECUDA_ENTER();
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -1;
  const auto range = Memory::get().find(pointer, 1);
  if (!range) return cudaSuccess;
  const bool device = range->kind == Range::Kind::Device || range->kind == Range::Kind::Imported;
  attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = range->device;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (!device) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

static_assert(sizeof(IpcHandle) <= sizeof(cudaIpcMemHandle_t));

FAKECUDA_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  FAKECUDA_ENTER();
  const IpcHandle made = Memory::get().share(memory);
  *handle = {};
  std::memcpy(handle, &made, sizeof made);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
  FAKECUDA_ENTER();
  allocating("cudaIpcOpenMemHandle");
  if (flags != cudaIpcMemLazyEnablePeerAccess) return report(cudaErrorInvalidValue);
  IpcHandle theirs;
  std::memcpy(&theirs, &handle, sizeof theirs);
  const int device = current_gpu().index;
  if (theirs.device != device && Settings::get().peers == 0) return report(cudaErrorPeerAccessUnsupported);
  *memory = Memory::get().open(theirs, device);
  return *memory ? cudaSuccess : report(cudaErrorMapBufferObjectFailed);
}

FAKECUDA_API cudaError_t cudaIpcCloseMemHandle(void* memory) {
  FAKECUDA_ENTER();
  rest("cudaIpcCloseMemHandle", memory);
  Memory::get().close(memory);
  return cudaSuccess;
}
