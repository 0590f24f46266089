// The loop of the kernels for test_device_fold.cpp (MPIGDR_FOLD): the threads of a device's grid, one after
// the other, on the host.
#pragma once

#include <algorithm>

#include "device/kernels/fold_elements.hpp"

namespace mpigdr::kernels::MPIGDR_ISA {

struct EmulatedArgs : ReduceArgs {
  unsigned threads = 1, most_blocks = 1;
};
using Args = EmulatedArgs;

template <typename Codec, typename Op, bool kScaled>
void fold(const Args& args) {
  with_fold_args<Codec>(args, [&](const auto& parameters) {
    const std::uint64_t wanted = (useful_threads<Codec>(parameters) + args.threads - 1) / args.threads;
    const std::uint64_t blocks = std::min<std::uint64_t>(wanted, args.most_blocks);
    // The last first: the order must not matter.
    for (std::uint64_t thread = blocks * args.threads; thread-- > 0;)
      fold_elements<Codec, Op, kScaled>(parameters, thread, blocks * args.threads);
  });
}

}  // namespace mpigdr::kernels::MPIGDR_ISA
