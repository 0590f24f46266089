#include "device/cuda/flag_kernels.hpp"
#include "device/cuda/launch.hpp"

namespace mpi_gdr::gpu {
inline namespace flags {  // an unnamed namespace's symbols would depend on the file's path

// Volatile: others write it, so each read goes past the caches.
using Word = GPU_VOLATILE(std::uint64_t);

// Kernels of one stream only write `count` and `poisoned`.
__global__ void count_replay_kernel(std::uint64_t* count) { ++*count; }

__global__ void wait_kernel(const Word* word, std::uint64_t at_least, const std::uint64_t* count,
                            std::uint64_t* poisoned, const Word* released) {
  if (count) at_least += *count << 32;
  while (true) {
    const std::uint64_t value = *word, over = released ? *released : std::uint64_t{0};  // both in flight
    if (static_cast<std::int64_t>(value - at_least) >= 0) break;
    if (over == 0) continue;
    *poisoned = 1;
    break;
  }
  __threadfence_system();  // before later reads
}

__global__ void write_kernel(Word* word, std::uint64_t value, const std::uint64_t* count,
                             const std::uint64_t* poisoned) {
  if (count && *poisoned != 0) return;
  if (count) value += *count << 32;
  __threadfence_system();  // after earlier writes
  *word = value;
}

__global__ void resolve_kernel(const GPU_GRID_CONSTANT ResolveArgs args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= 2 * args.ranks) return;
  const auto load = [](const auto& flags, int k) { return *reinterpret_cast<const Word* const*>(&flags)[k]; };
  const std::uint64_t word = load(args.shown, i), theirs = load(args.given_up, i % args.ranks),
                      own = load(args.given_up, args.rank);
  args.table[i] = theirs == 0 && own == 0 ? args.address(i, word, args.bases) : 0;
}

const void* const kWait = GPU_KERNEL(wait_kernel);
const void* const kWrite = GPU_KERNEL(write_kernel);
const void* const kCountReplay = GPU_KERNEL(count_replay_kernel);
const void* const kResolve = GPU_KERNEL(resolve_kernel);
[[maybe_unused]] const bool kEntered[] = {enter_kernel(kWait), enter_kernel(kWrite),
                                          enter_kernel(kCountReplay), enter_kernel(kResolve)};

template <typename... Arguments>
void start(int device, Stream stream, const void* kernel, unsigned threads, Arguments... arguments) {
  void* all[] = {&arguments...};
  GPU_CALL(device, LaunchKernel, kernel, dim3(1), dim3(threads), all, 0, stream);
}

}  // namespace flags

void launch_wait(int device, Stream stream, const Flag* flag, std::uint64_t at_least,
                 const Replays& replays) {
  start(device, stream, kWait, 1, flag, at_least, replays.count, replays.poisoned, replays.released);
}

void launch_write(int device, Stream stream, Flag* flag, std::uint64_t value, const Replays& replays) {
  start(device, stream, kWrite, 1, flag, value, replays.count, replays.poisoned);
}

void launch_count_replay(int device, Stream stream, const Replays& replays) {
  start(device, stream, kCountReplay, 1, replays.count);
}

void launch_resolve(int device, Stream stream, const ResolveArgs& args) {
  static_assert(2 * kMostResolved <= 1024 && sizeof(ResolveArgs) <= 4096);
  start(device, stream, kResolve, 2 * kMostResolved, args);
}

}  // namespace mpi_gdr::gpu
