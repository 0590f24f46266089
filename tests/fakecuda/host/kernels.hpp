// Lets the host's compiler compile the kernels of csrc/device/cuda, which include this first (see
// CMakeLists.txt here): host/launch.cpp calls a kernel as a function once for each thread, in sequence.
// Sanitizers thus check the kernels. Polled reads and fences are atomic operations of the same strength, so
// that ThreadSanitizer finds a missing fence between host and device. Between devices, which map memory at
// different addresses, gpu/weak_memory.hpp finds it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "gpu/fault.hpp"
#include "gpu/thread.hpp"

#undef __launch_bounds__
#define __launch_bounds__(...)
// Threads of a block run in sequence on one host thread and share its values, thread 0 first.
#undef __shared__
#define __shared__ static thread_local
inline void __syncthreads() {}

inline thread_local uint3 threadIdx{}, blockIdx{}, gridDim{};

namespace fakecuda {

// About 20 s of sleeps.
inline constexpr int kMostPolls = 250'000;

// The reads, polls and fences of the running kernel thread.
struct Fences {
  struct Read {
    const void* word;
    void (*acquire)(const void*);
  };
  std::array<Read, 4> reads;  // since the last fence
  std::size_t count = 0;
  int polls = 0;
  bool released = false;  // by a fence

  template <typename Word>
  void read(const Word* word) {
    for (std::size_t i = 0; i < count; ++i)
      if (reads[i].word == word) return poll();
    if (count == reads.size()) fault("not modelled: a kernel that reads many words of others");
    reads[count++] = {word, [](const void* it) {
                        static_cast<void>(__atomic_load_n(static_cast<const Word*>(it), __ATOMIC_ACQUIRE));
                      }};
  }
  void poll() {
    if (++polls == kMostPolls) fault("a kernel that polled too long");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  void fence() {
    for (std::size_t i = 0; i < count; ++i) reads[i].acquire(reads[i].word);
    count = 0;
    released = true;
  }
};
inline thread_local Fences fences;

// A word that the host or other devices write concurrently.
template <typename Word>
class Polled {
 public:
  operator Word() const {
    fences.read(&word_);
    return __atomic_load_n(&word_, __ATOMIC_RELAXED);
  }
  void operator=(Word value) {
    __atomic_store_n(&word_, value, fences.released ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
  }

 private:
  Word word_;
};

template <auto kFunction>
struct HostKernel;
template <typename... Params, void (*kFunction)(Params...)>
struct HostKernel<kFunction> {
  static constexpr std::array<Kernel::Param, sizeof...(Params)> kParams = [] {
    std::array<Kernel::Param, sizeof...(Params)> params{};
    std::uint32_t at = 0;
    std::size_t i = 0;
    const auto add = [&](std::uint32_t bytes, std::uint32_t alignment) {
      at = (at + alignment - 1) / alignment * alignment;
      params[i++] = {at, bytes};
      at += bytes;
    };
    (add(sizeof(Params), alignof(Params)), ...);
    return params;
  }();

  static void run(Thread& thread) {
    threadIdx.x = thread.tid;
    blockIdx.x = thread.ctaid;
    gridDim.x = thread.nctaid;
    fences = {};
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      kFunction(*reinterpret_cast<const Params*>(thread.params + kParams[i].at)...);
    }(std::index_sequence_for<Params...>{});
  }

  static const void* enter() {
    const auto function = reinterpret_cast<const void*>(kFunction);
    static const bool entered = enter_host_kernel(
        function, {__PRETTY_FUNCTION__, &run, kParams, kParams.back().at + kParams.back().bytes, 0, 0, 1024});
    static_cast<void>(entered);
    return function;
  }
};

}  // namespace fakecuda

inline void __threadfence_system() { fakecuda::fences.fence(); }

#define GPU_KERNEL(...) ::fakecuda::HostKernel<&__VA_ARGS__>::enter()
#define GPU_VOLATILE(Word) ::fakecuda::Polled<Word>
