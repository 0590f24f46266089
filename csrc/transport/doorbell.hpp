// Sleeping until another process has raised a flag in shared memory, where spinning would keep its rank from
// the core: futex(2) between processes. The writer rings after its store: a fence while no thread sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace mpi_gdr {

// A flag that a thread waits for. A value; what it points to stands in shared memory, and outlives it.
struct Doorbell {
  const std::atomic<std::uint64_t>* flag = nullptr;
  std::uint64_t seen = 0;                          // its value when it was looked at
  std::atomic<std::uint32_t>* sleepers = nullptr;  // of this flag and others

  // Until the flag has changed, for `patience` at most, and sometimes although it has: keep that short.
  void sleep(std::chrono::microseconds patience) const;
  // After `flag` was stored to.
  static void ring(const std::atomic<std::uint64_t>& flag, const std::atomic<std::uint32_t>& sleepers);
};

}  // namespace mpi_gdr
