// The runtime of a family of GPUs under names that CUDA and HIP share: GPU(MemcpyAsync) is cudaMemcpyAsync.
// All of this folder except driver.* uses these.
#pragma once

#include <string>

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#define GPU_TEXT(name) "hip" #name
#define GPU_GRID_CONSTANT
#else
#include <cuda_runtime_api.h>
#define GPU(name) cuda##name
#define GPU_TEXT(name) "cuda" #name
#define GPU_GRID_CONSTANT __grid_constant__  // the kernel reads its arguments without a copy
#endif

// GPU_KERNEL: a kernel's address for a launch. GPU_VOLATILE: a word that others write while a kernel reads
// it. Tests that compile kernels for the host define both before this header.
#ifndef GPU_KERNEL
#define GPU_KERNEL(...) reinterpret_cast<const void*>(&__VA_ARGS__)
#define GPU_VOLATILE(Word) volatile Word
#endif

namespace mpi_gdr::gpu {

using Stream = GPU(Stream_t);
using Event = GPU(Event_t);
#if defined(__HIP_PLATFORM_AMD__)
using Properties = hipDeviceProp_t;
inline constexpr auto kMultiprocessors = hipDeviceAttributeMultiprocessorCount;
#else
using Properties = cudaDeviceProp;
inline constexpr auto kMultiprocessors = cudaDevAttrMultiProcessorCount;
#endif

// Throws Error(System) "cudaMemcpyAsync on device 0: <the runtime's text> (cudaErrorInvalidValue)" if
// `status` is an error.
void check(GPU(Error_t) status, const char* call, int device);
// "an illegal memory access was encountered (cudaErrorIllegalAddress)"
std::string text(GPU(Error_t) status);

}  // namespace mpi_gdr::gpu

// Calls the runtime and throws on an error: GPU_CALL(device, MemcpyAsync, dst, src, bytes, ...).
#define GPU_CALL(device, name, ...) ::mpi_gdr::gpu::check(GPU(name)(__VA_ARGS__), GPU_TEXT(name), device)
