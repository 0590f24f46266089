// The loop of the kernels for test_device_fold.cpp (MPIGDR_FOLD): the threads of a device's grid, one after
// the other, on the host.
#pragma once

#include <algorithm>

#include "device/kernels/located_fold.hpp"

namespace mpigdr::kernels::MPIGDR_ISA {

struct EmulatedArgs : ReduceArgs {
  unsigned threads = 1, most_blocks = 1;
  const LocatedReduce* located = nullptr;
};
using Args = EmulatedArgs;

template <typename Codec, typename Op, bool kScaled, typename Parameters>
void run_threads(const Parameters& parameters, std::uint64_t useful, const Args& args) {
  const std::uint64_t blocks =
      std::min<std::uint64_t>((useful + args.threads - 1) / args.threads, args.most_blocks);
  // The last first: the order must not matter.
  for (std::uint64_t thread = blocks * args.threads; thread-- > 0;)
    fold_elements<Codec, Op, kScaled>(parameters, thread, blocks * args.threads);
}

template <typename Codec, typename Op, bool kScaled>
void fold(const Args& args) {
  if (args.located) {
    const LocatedFoldArgs parameters = located_fold_args<Codec>(args, *args.located);
    LocatedFold located;
    locate_fold<Codec>(parameters, located);
    return run_threads<Codec, Op, kScaled>(located, useful_threads<Codec>(parameters), args);
  }
  with_fold_args<Codec>(args, [&](const auto& parameters) {
    run_threads<Codec, Op, kScaled>(parameters, useful_threads<Codec>(parameters), args);
  });
}

}  // namespace mpigdr::kernels::MPIGDR_ISA
