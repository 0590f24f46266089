#include <type_traits>

#include "device/cuda/flag_kernels.hpp"
#include "device/cuda/launch.hpp"

namespace mpigdr::gpu {
inline namespace flags {  // nvcc derives the name of an unnamed namespace from the path of the file

// Volatile: read again each time, and past the caches, for others write it.
template <typename Word>
__global__ void wait_kernel(const GPU_VOLATILE(Word) * word, Word at_least) {
  using Signed = std::make_signed_t<Word>;
  while (static_cast<Signed>(*word - at_least) < 0) {
  }
  __threadfence_system();  // nothing that follows is read before
}

template <typename Word>
__global__ void write_kernel(GPU_VOLATILE(Word) * word, Word value) {
  __threadfence_system();  // what was written before is seen first
  *word = value;
}

// Volatile: what others have written is found in the host's memory, past the caches.
__global__ void resolve_kernel(const GPU_GRID_CONSTANT ResolveArgs args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= 2 * args.ranks) return;
  const auto load = [](const auto& flags, int k) {
    return *reinterpret_cast<const GPU_VOLATILE(std::uint64_t)* const*>(&flags)[k];
  };
  const std::uint64_t word = load(args.shown, i), theirs = load(args.given_up, i % args.ranks),
                      own = load(args.given_up, args.rank);
  args.table[i] = theirs == 0 && own == 0 ? args.address(i, word, args.bases) : 0;
}

// Of Replays: `count` and `poisoned` are written by kernels of one stream only, `released` by the host.
__global__ void count_replay_kernel(std::uint64_t* count) { ++*count; }

__global__ void wait_replay_kernel(const GPU_VOLATILE(std::uint64_t) * word, const std::uint64_t* count,
                                   std::uint64_t* poisoned, const GPU_VOLATILE(std::uint64_t) * released,
                                   std::uint32_t ago, std::uint32_t number) {
  const std::uint64_t at_least = (*count - ago) << 32 | number;
  while (true) {
    const std::uint64_t value = *word, over = *released;  // under way at the same time
    if (static_cast<std::int64_t>(value - at_least) >= 0) break;
    if (over == 0) continue;
    *poisoned = 1;
    break;
  }
  __threadfence_system();  // nothing that follows is read before
}

__global__ void write_replay_kernel(GPU_VOLATILE(std::uint64_t) * word, const std::uint64_t* count,
                                    const std::uint64_t* poisoned, std::uint32_t number) {
  if (*poisoned != 0) return;
  __threadfence_system();  // what was written before is seen first
  *word = *count << 32 | number;
}

std::uint64_t* plain(const Flag64* flag) {
  return const_cast<std::uint64_t*>(reinterpret_cast<const std::uint64_t*>(flag));
}

const void* const kResolve = GPU_KERNEL(resolve_kernel);
const void* const kWait = GPU_KERNEL(wait_kernel<std::uint32_t>);
const void* const kWrite = GPU_KERNEL(write_kernel<std::uint32_t>);
const void* const kWait64 = GPU_KERNEL(wait_kernel<std::uint64_t>);
const void* const kWrite64 = GPU_KERNEL(write_kernel<std::uint64_t>);
const void* const kCountReplay = GPU_KERNEL(count_replay_kernel);
const void* const kWaitReplay = GPU_KERNEL(wait_replay_kernel);
const void* const kWriteReplay = GPU_KERNEL(write_replay_kernel);
[[maybe_unused]] const bool kEntered[] = {enter_kernel(kWait),        enter_kernel(kWrite),
                                          enter_kernel(kWait64),      enter_kernel(kWrite64),
                                          enter_kernel(kCountReplay), enter_kernel(kWaitReplay),
                                          enter_kernel(kWriteReplay), enter_kernel(kResolve)};

}  // namespace flags

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

void launch_resolve(int device, Stream stream, const ResolveArgs& args) {
  static_assert(2 * kMostResolved <= 1024 && sizeof(ResolveArgs) <= 4096);
  ResolveArgs copy = args;
  void* arguments[] = {&copy};
  GPU_CALL(device, LaunchKernel, kResolve, dim3(1), dim3(2 * kMostResolved), arguments, 0, stream);
}

void launch_count_replay(int device, Stream stream, const Replays& replays) {
  std::uint64_t* count = plain(replays.count);
  void* arguments[] = {&count};
  GPU_CALL(device, LaunchKernel, kCountReplay, dim3(1), dim3(1), arguments, 0, stream);
}

void launch_wait_replay(int device, Stream stream, const Flag64* flag, const Replays& replays,
                        std::uint32_t ago, std::uint32_t number) {
  std::uint64_t *word = plain(flag), *count = plain(replays.count), *poisoned = plain(replays.poisoned),
                *released = plain(replays.released);
  void* arguments[] = {&word, &count, &poisoned, &released, &ago, &number};
  GPU_CALL(device, LaunchKernel, kWaitReplay, dim3(1), dim3(1), arguments, 0, stream);
}

void launch_write_replay(int device, Stream stream, Flag64* flag, const Replays& replays,
                         std::uint32_t number) {
  std::uint64_t *word = plain(flag), *count = plain(replays.count), *poisoned = plain(replays.poisoned);
  void* arguments[] = {&word, &count, &poisoned, &number};
  GPU_CALL(device, LaunchKernel, kWriteReplay, dim3(1), dim3(1), arguments, 0, stream);
}

}  // namespace mpigdr::gpu
