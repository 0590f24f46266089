#include "device/cuda/launch.hpp"

#include <algorithm>
#include <vector>

#include "common/error.hpp"

namespace mpi_gdr::gpu {
namespace {

std::vector<const void*>& all_kernels() {
  static std::vector<const void*> kernels;
  return kernels;
}

}  // namespace

std::string text(GPU(Error_t) status) {
  return std::string(GPU(GetErrorString)(status)) + " (" + GPU(GetErrorName)(status) + ")";
}

void check(GPU(Error_t) status, const char* call, int device) {
  if (status == GPU(Success)) return;
  // Clears the runtime's last error, which the next caller of GetLastError would get otherwise.
  static_cast<void>(GPU(GetLastError)());
  fail(ErrorCode::System, call, " on device ", device, ": ", text(status));
}

bool enter_kernel(const void* kernel) {
  all_kernels().push_back(kernel);
  return true;
}

void load_kernels(int device) {
  for (const void* kernel : all_kernels()) {
    GPU(FuncAttributes) attributes;
    GPU_CALL(device, FuncGetAttributes, &attributes, kernel);
  }
}

void launch(const void* kernel, std::uint64_t threads, void* parameters, const LaunchArgs& args) {
  const std::uint64_t blocks = std::min<std::uint64_t>((threads + kThreads - 1) / kThreads, args.most_blocks);
  void* arguments[] = {parameters};
  GPU_CALL(args.device, LaunchKernel, kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), arguments,
           0, args.stream);
}

}  // namespace mpi_gdr::gpu
