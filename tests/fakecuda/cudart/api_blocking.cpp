// Calls that wait for their own work, on the legacy stream.
#include <cuda_runtime_api.h>

#include "cudart/api.hpp"

using namespace fakecuda;

FAKECUDA_API cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind) {
  const cudaError_t status = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, nullptr);
  return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}

FAKECUDA_API cudaError_t cudaMemset(void* dst, int value, std::size_t bytes) {
  const cudaError_t status = cudaMemsetAsync(dst, value, bytes, nullptr);
  return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}
