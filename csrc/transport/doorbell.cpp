#include "transport/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace mpi_gdr {
namespace {

// The half that the kernel compares. If only the other half changes, a sleeper waits for its timeout.
const void* low_half(const std::atomic<std::uint64_t>& flag) {
  static_assert(sizeof(flag) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);
  return reinterpret_cast<const std::uint32_t*>(&flag) + (std::endian::native == std::endian::big ? 1 : 0);
}

}  // namespace

void Doorbell::sleep(std::chrono::microseconds patience) const {
  // Before the kernel reads the flag: either it sees the new value, or the writer sees a sleeper.
  sleepers->fetch_add(1, std::memory_order_seq_cst);
  const timespec timeout{patience.count() / 1000000, patience.count() % 1000000 * 1000};
  if (flag->load(std::memory_order_seq_cst) == seen)
    ::syscall(SYS_futex, low_half(*flag), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &timeout, nullptr, 0);
  sleepers->fetch_sub(1, std::memory_order_relaxed);
}

void Doorbell::ring(const std::atomic<std::uint64_t>& flag, const std::atomic<std::uint32_t>& sleepers) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_relaxed) > 0)
    ::syscall(SYS_futex, low_half(flag), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace mpi_gdr
