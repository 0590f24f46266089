#pragma once

#include <utility>

#include "gpu/translated.hpp"
#include "launch_kernel.hpp"

namespace unit {

// Whether a block sees a part of the stores of kCount values that another makes at once.
template <fakecuda::Order kOrder, typename T, std::size_t kCount>
bool store_tears() {
  using namespace fakecuda;
  using namespace fakecuda::ptx;
  const auto body = [](Thread& t) {
    const u64 memory = load_param<u64, 1>(t, 0)[0];
    for (u64 n = 0; n < 1000; ++n) {
      if (t.ctaid == 0) {
        const auto value = static_cast<T>(n << 32 | n);
        [&]<std::size_t... i>(std::index_sequence<i...>) {
          store<kOrder, T>(t, memory, (static_cast<void>(i), value)...);
        }(std::make_index_sequence<kCount>());
      } else {
        const auto seen = load<kOrder, u32, kCount * sizeof(T) / 4>(t, memory);
        if (seen.front() != seen.back()) store<Order::Volatile, u32>(t, memory + 16, u32{1});
      }
    }
  };
  const Kernel kernel{"by hand", body, {}, 8, 0, kRegisters, 1024};
  alignas(16) u32 memory[5] = {};
  run_kernel(kernel, 2, 1, 1, &memory);
  return memory[4] == 1;
}

}  // namespace unit
