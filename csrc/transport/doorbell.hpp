// Sleeps on a flag in shared memory, by futex(2). While no thread sleeps, the writer pays a fence.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace mpi_gdr {

// An awaited flag. A value; its pointers are to shared memory that outlives it.
struct Doorbell {
  const std::atomic<std::uint64_t>* flag = nullptr;
  std::uint64_t seen = 0;                          // its last observed value
  std::atomic<std::uint32_t>* sleepers = nullptr;  // of this flag and others

  // Until the flag has changed, at most for `patience`, sometimes although it has: keep that short.
  void sleep(std::chrono::microseconds patience) const;
  // Call after storing to `flag`.
  static void ring(const std::atomic<std::uint64_t>& flag, const std::atomic<std::uint32_t>& sleepers);
};

}  // namespace mpi_gdr
