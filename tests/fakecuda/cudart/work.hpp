// Work of streams other than kernels: copies, and words that they wait for and write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cudart/stream.hpp"
#include "gpu/weak_memory.hpp"

namespace fakecuda {

// Within memory known to CUDA, which is checked when the copy runs.
Step copy_step(void* dst, const void* src, std::size_t bytes);
Step fill_step(void* dst, int value, std::size_t bytes);
// A host function that accesses memory directly: it is synchronised with the device before and after.
Step by_host(std::function<void()> work);

// Until the word has reached `at_least`, cyclically. Acquires.
template <typename Word>
Step wait_step(const Word* word, Word at_least) {
  return [=] {
    const Word value = std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_acquire);
    if (static_cast<std::make_signed_t<Word>>(value - at_least) < 0) return Progress::Waiting;
    if (weak_memory()) weak_memory()->acquire();
    return Progress::Ended;
  };
}

// After all earlier work of the stream. Releases.
template <typename Word>
Step write_step(Word* word, Word value) {
  return once([=] {
    if (weak_memory()) weak_memory()->release();
    std::atomic_ref(*word).store(value, std::memory_order_release);
  });
}

}  // namespace fakecuda
