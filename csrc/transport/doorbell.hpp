// Sleeps on a flag in shared memory, by futex(2). While no thread sleeps, ring() costs a fence.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace mpi_gdr {

// A flag to wait for. Copyable; the shared memory of its pointers must outlive it.
struct Doorbell {
  const std::atomic<std::uint64_t>* flag = nullptr;
  std::uint64_t seen = 0;                          // its last observed value
  std::atomic<std::uint32_t>* sleepers = nullptr;  // threads asleep on this flag or others

  // Blocks until the flag changes, at most for `patience`. May miss a change: keep `patience` short.
  void sleep(std::chrono::microseconds patience) const;
  // Call after storing to `flag`.
  static void ring(const std::atomic<std::uint64_t>& flag, const std::atomic<std::uint32_t>& sleepers);
};

}  // namespace mpi_gdr
