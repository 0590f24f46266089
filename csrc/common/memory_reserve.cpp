#include "common/memory_reserve.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace mpi_gdr {
namespace {

// Mapped, so that releasing it serves every allocator; glibc heaps grow by 132 KiB.
constexpr std::size_t kReserve = 1 << 20;
std::atomic<void*> reserve{nullptr};

}  // namespace

void keep_memory_reserve() noexcept {
  if (reserve.load(std::memory_order_relaxed)) return;
  // Populated: the limit may be on resident memory.
  void* const memory =
      ::mmap(nullptr, kReserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return;
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, memory, std::memory_order_acq_rel)) ::munmap(memory, kReserve);
}

void release_memory_reserve() noexcept {
  if (void* const memory = reserve.exchange(nullptr, std::memory_order_acq_rel)) ::munmap(memory, kReserve);
}

}  // namespace mpi_gdr
