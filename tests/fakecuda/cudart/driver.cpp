// libcuda.so.1: contexts, and the stream memory operations.
#include <cuda.h>

#include <atomic>

#include "cudart/api.hpp"
#include "cudart/call_site.hpp"
#include "cudart/handles.hpp"
#include "cudart/memory.hpp"
#include "cudart/settings.hpp"
#include "cudart/work.hpp"

using namespace fakecuda;

namespace {

std::atomic<bool> initialised{false};

CUresult ready(const char* call) {
  if (const int error = failure_of(call)) return static_cast<CUresult>(error);
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return Machine::get().forked() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

using Word = std::uint64_t;

Word* word_at(CUdeviceptr address, const char* call) {
  auto* const word = reinterpret_cast<Word*>(address);
  if (address % sizeof(Word) != 0) fault("misaligned word of a stream memory operation", word);
  if (!kPageable && !Memory::get().find(word, sizeof(Word)))
    fault((std::string(call) + ": foreign pointer").c_str(), word);
  return word;
}

// Checks the word again when the stream accesses it.
Step checked(const Word* word, bool write, Step step) {
  return [=] {
    Memory::get().check(word, sizeof(Word), write);
    return step();
  };
}

}  // namespace

void fakecuda::initialise_driver() { initialised = true; }

FAKECUDA_API CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  initialised = true;
  return ready(__func__);
}

FAKECUDA_API CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(Settings::get().driver);
  return CUDA_SUCCESS;
}

FAKECUDA_API CUresult cuGetErrorName(CUresult error, const char** name) {
#define FAKECUDA_NAME(known) \
  if (error == known) return *name = #known, CUDA_SUCCESS
  FAKECUDA_NAME(CUDA_SUCCESS);
  FAKECUDA_NAME(CUDA_ERROR_INVALID_VALUE);
  FAKECUDA_NAME(CUDA_ERROR_NOT_INITIALIZED);
  FAKECUDA_NAME(CUDA_ERROR_INVALID_DEVICE);
  FAKECUDA_NAME(CUDA_ERROR_UNKNOWN);
  FAKECUDA_NAME(CUDA_ERROR_NOT_SUPPORTED);
  *name = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

// Errors have the numbers of the runtime's.
FAKECUDA_API CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

FAKECUDA_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult status = ready(__func__)) return status;
  if (ordinal < 0 || ordinal >= Machine::get().devices()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKECUDA_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  if (const CUresult status = ready(__func__)) return status;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = Settings::get().stream_words != 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
      *value = Settings::get().flush ? CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
      *value = static_cast<int>(Settings::get().ordering);
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = static_cast<int>(Settings::get().capability);
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
      *value = Settings::get().c2c != 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      *value = Settings::get().slice_us == 0;
      return CUDA_SUCCESS;
    default:
      fault("not modelled: cuDeviceGetAttribute");
  }
}

FAKECUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult status = ready(__func__)) return status;
  *context = reinterpret_cast<CUcontext>(&Machine::get().gpu(device));
  return CUDA_SUCCESS;
}

FAKECUDA_API CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult status = ready(__func__)) return status;
  *context = reinterpret_cast<CUcontext>(current_context());
  return CUDA_SUCCESS;
}

FAKECUDA_API CUresult cuCtxSetCurrent(CUcontext context) {
  if (const CUresult status = ready(__func__)) return status;
  current_context() = reinterpret_cast<Gpu*>(context);
  return CUDA_SUCCESS;
}

FAKECUDA_API CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                             unsigned flags) {
  const char* const call = "cuStreamWaitValue64";
  if (const CUresult status = ready(call)) return status;
  if (!Settings::get().stream_words) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0 && !Settings::get().flush) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & ~CU_STREAM_WAIT_VALUE_FLUSH) != CU_STREAM_WAIT_VALUE_GEQ)
    fault("not modelled: flags of a wait for a value");
  const Word* const word = word_at(address, call);
  if (call_left_out("stream_wait")) return CUDA_SUCCESS;
  Lock lock = lock_machine();
  submit(lock, use_stream(stream, call), checked(word, false, wait_step(word, value)));
  return CUDA_SUCCESS;
}

FAKECUDA_API CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                              unsigned flags) {
  const char* const call = "cuStreamWriteValue64";
  if (const CUresult status = ready(call)) return status;
  if (!Settings::get().stream_words) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) fault("not modelled: flags of a write of a value");
  Word* const word = word_at(address, call);
  if (call_left_out("flag_write")) return CUDA_SUCCESS;
  Lock lock = lock_machine();
  submit(lock, use_stream(stream, call), checked(word, true, write_step(word, value)));
  return CUDA_SUCCESS;
}
