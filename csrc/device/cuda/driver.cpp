#include "device/cuda/driver.hpp"

#include <cuda.h>
#include <dlfcn.h>

#include "common/error.hpp"

namespace mpi_gdr::gpu {
namespace {

using StreamFlag = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned);

// CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which the first headers of CUDA 12 lack.
constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);

struct Driver {
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*driver_get_version)(int*) = nullptr;
  CUresult (*get_error_string)(CUresult, const char**) = nullptr;
  CUresult (*get_error_name)(CUresult, const char**) = nullptr;
  CUresult (*device_get)(CUdevice*, int) = nullptr;
  CUresult (*device_get_attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  CUresult (*primary_context_retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*context_get_current)(CUcontext*) = nullptr;
  CUresult (*context_set_current)(CUcontext) = nullptr;
  // Null in an old driver.
  StreamFlag stream_wait = nullptr, stream_write = nullptr;
  std::string missing;  // why there is no driver; empty if there is one

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      missing = "no NVIDIA driver (libcuda.so.1) on this machine";
      return;
    }
    find(library, "cuInit", init);
    find(library, "cuDriverGetVersion", driver_get_version);
    find(library, "cuGetErrorString", get_error_string);
    find(library, "cuGetErrorName", get_error_name);
    find(library, "cuDeviceGet", device_get);
    find(library, "cuDeviceGetAttribute", device_get_attribute);
    find(library, "cuDevicePrimaryCtxRetain", primary_context_retain);
    find(library, "cuCtxGetCurrent", context_get_current);
    find(library, "cuCtxSetCurrent", context_set_current);
    stream_wait = reinterpret_cast<StreamFlag>(dlsym(library, "cuStreamWaitValue64_v2"));
    stream_write = reinterpret_cast<StreamFlag>(dlsym(library, "cuStreamWriteValue64_v2"));
  }

  template <typename Function>
  void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function && missing.empty()) missing = std::string("libcuda.so.1 has no ") + name;
  }
};

const Driver& driver() {
  static const Driver it;
  return it;
}

void check(CUresult status, const char* call, int device) {
  if (status == CUDA_SUCCESS) return;
  const char *text = nullptr, *name = nullptr;
  driver().get_error_string(status, &text);
  driver().get_error_name(status, &name);
  fail(ErrorCode::System, call, " on device ", device, ": ", text ? text : "unknown error", " (",
       name ? name : "?", ")");
}

CUdeviceptr address(const Flag* flag) { return reinterpret_cast<CUdeviceptr>(flag); }

}  // namespace

bool driver_present(std::string& why) {
  why = driver().missing;
  return why.empty();
}

std::string driver_version() {
  int version = 0;
  driver().driver_get_version(&version);
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

DriverDevice::DriverDevice(int index) : index_(index) {
  const Driver& d = driver();
  if (!d.missing.empty()) fail(ErrorCode::System, "device ", index, ": ", d.missing);
  check(d.init(0), "cuInit", index);
  CUdevice device;
  check(d.device_get(&device, index), "cuDeviceGet", index);
  check(d.primary_context_retain(&context_, device), "cuDevicePrimaryCtxRetain", index);
  const auto has = [&](CUdevice_attribute attribute, int at_least = 1) {
    int value = 0;
    return d.device_get_attribute(&value, attribute, device) == CUDA_SUCCESS && value >= at_least;
  };
  stream_flags_ = d.stream_wait && d.stream_write && has(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  // A flag, in host memory, may overtake what a network card writes into device memory (GPUDirect): the wait
  // must flush such writes, or later kernels could read old data. Devices before Hopper need the flush
  // whatever ordering they report. Over C2C (Grace Hopper) the flag takes another link, so neither helps.
  int flushes = 0;
  d.device_get_attribute(&flushes, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, device);
  const bool flushed = stream_flags_ && (flushes & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS) != 0;
  wait_flags_ = CU_STREAM_WAIT_VALUE_GEQ | (flushed ? CU_STREAM_WAIT_VALUE_FLUSH : 0);
  const bool ordered =
      has(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9) &&
      has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
  orders_remote_writes_ =
      (flushed || ordered) && !has(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  int shared = 1;
  takes_turns_ = d.device_get_attribute(&shared, kMpsEnabled, device) == CUDA_SUCCESS && shared == 0;
}

void DriverDevice::wait_flag(Stream stream, const Flag* flag, std::uint64_t at_least) const {
  check(driver().stream_wait(stream, address(flag), at_least, wait_flags_), "cuStreamWaitValue64", index_);
}

void DriverDevice::write_flag(Stream stream, Flag* flag, std::uint64_t value) const {
  // The default includes a memory barrier before the write.
  check(driver().stream_write(stream, address(flag), value, CU_STREAM_WRITE_VALUE_DEFAULT),
        "cuStreamWriteValue64", index_);
}

void DriverDevice::enter_thread() const {
  check(driver().context_set_current(context_), "cuCtxSetCurrent", index_);
}

DeviceGuard::DeviceGuard(const DriverDevice& device) {
  check(driver().context_get_current(&earlier_), "cuCtxGetCurrent", device.index());
  if (earlier_ == device.context()) return;
  check(driver().context_set_current(device.context()), "cuCtxSetCurrent", device.index());
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) driver().context_set_current(earlier_);
}

}  // namespace mpi_gdr::gpu
