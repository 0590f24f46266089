// Work of streams other than kernels: copies, and words that they wait for and write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cudart/stream.hpp"
#include "gpu/weak_memory.hpp"

namespace fakecuda {

// The addresses must be known to CUDA, which is checked when the step runs.
Step copy_step(void* dst, const void* src, std::size_t bytes);
Step fill_step(void* dst, int value, std::size_t bytes);
// A step of the host that accesses memory directly: it is synchronised with the device before and after.
Step by_host(Step step);

// Waits until the word has reached `at_least`, modulo 2^64. Acquires.
inline Step wait_step(const std::uint64_t* word, std::uint64_t at_least) {
  return [=] {
    const std::uint64_t value =
        std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
    if (static_cast<std::int64_t>(value - at_least) < 0) return Progress::Waiting;
    if (weak_memory()) weak_memory()->acquire();
    return Progress::Ended;
  };
}

// After all earlier work of the stream. Releases.
inline Step write_step(std::uint64_t* word, std::uint64_t value) {
  return once([=] {
    if (weak_memory()) weak_memory()->release();
    std::atomic_ref(*word).store(value, std::memory_order_release);
  });
}

}  // namespace fakecuda
