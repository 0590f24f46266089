#pragma once

#include <cstring>

#include "gpu/kernel.hpp"

namespace unit {

inline fakecuda::Multiprocessors& whole_gpu() {
  static fakecuda::Multiprocessors room;
  return room;
}

// Packs arguments in order, each at a multiple of its size.
template <typename... Arguments>
std::vector<std::byte> parameters(Arguments... arguments) {
  std::vector<std::byte> bytes;
  const auto put = [&](const auto& argument) {
    const std::size_t size = sizeof argument, at = (bytes.size() + size - 1) / size * size;
    bytes.resize(at + size);
    std::memcpy(&bytes[at], &argument, size);
  };
  (put(arguments), ...);
  return bytes;
}

inline void finish(fakecuda::Launch& launch) {
  while (launch.step() != fakecuda::Launch::State::Ended) {
  }
}

template <typename... Arguments>
void run_kernel(const fakecuda::Kernel& kernel, unsigned blocks, unsigned threads, std::uint64_t seed,
                Arguments... arguments) {
  fakecuda::Launch launch(kernel, blocks, threads, parameters(arguments...), whole_gpu(), seed);
  finish(launch);
}

}  // namespace unit
