#include <type_traits>

#include "device/cuda/flag_kernels.hpp"
#include "device/cuda/launch.hpp"

namespace mpi_gdr::gpu {
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
template <typename Word>
const void* wait_address() {
  return GPU_KERNEL(wait_kernel<Word>);
}
template <typename Word>
const void* write_address() {
  return GPU_KERNEL(write_kernel<Word>);
}
const void* const kCountReplay = GPU_KERNEL(count_replay_kernel);
const void* const kWaitReplay = GPU_KERNEL(wait_replay_kernel);
const void* const kWriteReplay = GPU_KERNEL(write_replay_kernel);
[[maybe_unused]] const bool kEntered[] = {enter_kernel(wait_address<std::uint32_t>()),
                                          enter_kernel(write_address<std::uint32_t>()),
                                          enter_kernel(wait_address<std::uint64_t>()),
                                          enter_kernel(write_address<std::uint64_t>()),
                                          enter_kernel(kCountReplay),
                                          enter_kernel(kWaitReplay),
                                          enter_kernel(kWriteReplay),
                                          enter_kernel(kResolve)};

template <typename... Arguments>
void start(int device, Stream stream, const void* kernel, unsigned threads, Arguments... arguments) {
  void* all[] = {&arguments...};
  GPU_CALL(device, LaunchKernel, kernel, dim3(1), dim3(threads), all, 0, stream);
}

}  // namespace flags

template <typename Word>
void launch_wait(int device, Stream stream, const Word* word, Word at_least) {
  start(device, stream, wait_address<Word>(), 1, word, at_least);
}
template void launch_wait(int, Stream, const std::uint32_t*, std::uint32_t);
template void launch_wait(int, Stream, const std::uint64_t*, std::uint64_t);

template <typename Word>
void launch_write(int device, Stream stream, Word* word, Word value) {
  start(device, stream, write_address<Word>(), 1, word, value);
}
template void launch_write(int, Stream, std::uint32_t*, std::uint32_t);
template void launch_write(int, Stream, std::uint64_t*, std::uint64_t);

void launch_resolve(int device, Stream stream, const ResolveArgs& args) {
  static_assert(2 * kMostResolved <= 1024 && sizeof(ResolveArgs) <= 4096);
  start(device, stream, kResolve, 2 * kMostResolved, args);
}

void launch_count_replay(int device, Stream stream, const Replays& replays) {
  start(device, stream, kCountReplay, 1, plain(replays.count));
}

void launch_wait_replay(int device, Stream stream, const Flag64* flag, const Replays& replays,
                        std::uint32_t ago, std::uint32_t number) {
  start(device, stream, kWaitReplay, 1, plain(flag), plain(replays.count), plain(replays.poisoned),
        plain(replays.released), ago, number);
}

void launch_write_replay(int device, Stream stream, Flag64* flag, const Replays& replays,
                         std::uint32_t number) {
  start(device, stream, kWriteReplay, 1, plain(flag), plain(replays.count), plain(replays.poisoned), number);
}

}  // namespace mpi_gdr::gpu
