// What streams do but for kernels: copies, and words that they wait for and write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cudart/stream.hpp"

namespace fakecuda {

// Of memory that CUDA knows; whether it still does is looked at when the copy is made.
Step copy_step(void* dst, const void* src, std::size_t bytes);
Step fill_step(void* dst, int value, std::size_t bytes);

// Until the word has come to `at_least`, cyclically. Acquires.
template <typename Word>
Step wait_step(const Word* word, Word at_least) {
  return [=] {
    const Word value = std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_acquire);
    return static_cast<std::make_signed_t<Word>>(value - at_least) >= 0 ? Progress::Ended : Progress::Waiting;
  };
}

// Behind all that the stream has done. Releases.
template <typename Word>
Step write_step(Word* word, Word value) {
  return once([=] { std::atomic_ref(*word).store(value, std::memory_order_release); });
}

}  // namespace fakecuda
