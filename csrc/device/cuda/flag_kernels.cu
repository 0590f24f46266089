#include <type_traits>

#include "device/cuda/flag_kernels.hpp"
#include "device/cuda/launch.hpp"

namespace mpigdr::gpu {
namespace {

// Volatile: read again each time, and past the caches, for others write it.
template <typename Word>
__global__ void wait_kernel(const volatile Word* word, Word at_least) {
  using Signed = std::make_signed_t<Word>;
  while (static_cast<Signed>(*word - at_least) < 0) {
  }
  __threadfence_system();  // nothing that follows is read before
}

template <typename Word>
__global__ void write_kernel(volatile Word* word, Word value) {
  __threadfence_system();  // what was written before is seen first
  *word = value;
}

// Volatile: what others have written is found in the host's memory, past the caches.
__global__ void locate_kernel(const GPU_GRID_CONSTANT LocateArgs args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= 2 * args.ranks) return;
  const Flag64* const* const flags = reinterpret_cast<const Flag64* const*>(&args.shown);
  args.table[i] = args.address(i, *reinterpret_cast<const volatile std::uint64_t*>(flags[i]), args.bases);
}

const void* const kLocate = reinterpret_cast<const void*>(&locate_kernel);
const void* const kWait = reinterpret_cast<const void*>(&wait_kernel<std::uint32_t>);
const void* const kWrite = reinterpret_cast<const void*>(&write_kernel<std::uint32_t>);
const void* const kWait64 = reinterpret_cast<const void*>(&wait_kernel<std::uint64_t>);
const void* const kWrite64 = reinterpret_cast<const void*>(&write_kernel<std::uint64_t>);
[[maybe_unused]] const bool kEntered[] = {enter_kernel(kWait), enter_kernel(kWrite), enter_kernel(kWait64),
                                          enter_kernel(kWrite64), enter_kernel(kLocate)};

}  // namespace

void launch_wait(int device, Stream stream, const std::uint32_t* word, std::uint32_t at_least) {
  void* arguments[] = {&word, &at_least};
  GPU_CALL(device, LaunchKernel, kWait, dim3(1), dim3(1), arguments, 0, stream);
}

void launch_write(int device, Stream stream, std::uint32_t* word, std::uint32_t value) {
  void* arguments[] = {&word, &value};
  GPU_CALL(device, LaunchKernel, kWrite, dim3(1), dim3(1), arguments, 0, stream);
}

void launch_wait64(int device, Stream stream, const std::uint64_t* word, std::uint64_t at_least) {
  void* arguments[] = {&word, &at_least};
  GPU_CALL(device, LaunchKernel, kWait64, dim3(1), dim3(1), arguments, 0, stream);
}

void launch_write64(int device, Stream stream, std::uint64_t* word, std::uint64_t value) {
  void* arguments[] = {&word, &value};
  GPU_CALL(device, LaunchKernel, kWrite64, dim3(1), dim3(1), arguments, 0, stream);
}

void launch_locate(int device, Stream stream, const LocateArgs& args) {
  static_assert(2 * kMostLocated <= 1024 && sizeof(LocateArgs) <= 4096);
  LocateArgs copy = args;
  void* arguments[] = {&copy};
  GPU_CALL(device, LaunchKernel, kLocate, dim3(1), dim3(2 * kMostLocated), arguments, 0, stream);
}

}  // namespace mpigdr::gpu
