// Memory that processes of a node share: device memory by the runtime's handles, host memory by registration
// in each process.
#include <cstring>

#include "common/error.hpp"
#include "device/cuda/cuda_device.hpp"

namespace mpi_gdr {

std::string CudaDevice::export_memory(void* memory) {
  const gpu::DeviceGuard guard(driver_);
  GPU(IpcMemHandle_t) handle;
  GPU_CALL(index_, IpcGetMemHandle, &handle, memory);
  return std::string(reinterpret_cast<const char*>(&handle), sizeof handle);
}

void* CudaDevice::import_memory(const std::string& ticket) {
  const gpu::DeviceGuard guard(driver_);
  GPU(IpcMemHandle_t) handle;
  if (ticket.size() != sizeof handle)
    fail(ErrorCode::System, "a handle of ", ticket.size(), " bytes for memory of another process, expected ",
         sizeof handle);
  std::memcpy(&handle, ticket.data(), sizeof handle);
  void* memory = nullptr;
  // Also memory of another device of the node, with peer access.
  GPU_CALL(index_, IpcOpenMemHandle, &memory, handle, GPU(IpcMemLazyEnablePeerAccess));
  return memory;
}

void CudaDevice::release_imported(void* memory) {
  const gpu::DeviceGuard guard(driver_);
  GPU_CALL(index_, IpcCloseMemHandle, memory);
}

void CudaDevice::register_host(void* memory, std::size_t bytes) {
  const gpu::DeviceGuard guard(driver_);
  GPU_CALL(index_, HostRegister, memory, bytes, GPU(HostRegisterMapped) | GPU(HostRegisterPortable));
  try {
    expect_same_address(memory);
  } catch (const Error&) {
    static_cast<void>(GPU(HostUnregister)(memory));
    throw;
  }
}

void CudaDevice::unregister_host(void* memory) {
  const gpu::DeviceGuard guard(driver_);
  GPU_CALL(index_, HostUnregister, memory);
}

}  // namespace mpi_gdr
