// The elementwise loop behind host::reduce, one instance per (codec, operation, scaled).
// Plain loops over blocks that fit the first-level cache, left to the compiler's vectoriser. No state, no
// allocation. Only the reduce_*.cpp beside it include this.
#pragma once

#include <cstddef>
#include <type_traits>

#include "device/device.hpp"
#include "device/host/operations.hpp"

// dst may equal a source exactly, so a store never changes what a later iteration loads; without this promise
// the compiler guards the vector loop with an overlap check that in-place calls fail.
#if defined(__clang__)
#define MPIGDR_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define MPIGDR_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace mpigdr::host::MPIGDR_ISA {

// 1024 elements of the widest type take 16 KiB: the partial results stay in the first-level cache while every
// source is streamed through once.
inline constexpr std::size_t kBlock = 1024;

template <typename Codec, typename Op, bool kScaled>
void fold(const ReduceArgs& args) {
  using Stored = typename Codec::Stored;
  using Folded = typename Codec::Folded;
  [[maybe_unused]] const std::conditional_t<kScaled, Scaling<Folded>, NoScaling> scaling(args);
  const auto load = [&](Stored v) {
    if constexpr (kScaled)
      return scaling.before(Codec::load(v));
    else
      return Codec::load(v);
  };
  const auto store = [&](Folded v) {
    if constexpr (kScaled)
      return Codec::store(scaling.after(v));
    else
      return Codec::store(v);
  };
  Folded partial[kBlock];
  for (std::size_t base = 0; base < args.count; base += kBlock) {
    const std::size_t n = args.count - base < kBlock ? args.count - base : kBlock;
    Stored* dst = static_cast<Stored*>(args.dst) + base;
    const auto source = [&](int k) { return static_cast<const Stored*>(args.sources[k]) + base; };
    const Stored* last = source(args.source_count - 1);
    if (args.source_count == 1) {
      MPIGDR_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < n; ++i) dst[i] = store(load(last[i]));
      continue;
    }
    const Stored* first = source(0);
    if (args.source_count == 2) {
      MPIGDR_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < n; ++i) dst[i] = store(Op::apply(load(first[i]), load(last[i])));
      continue;
    }
    const Stored* second = source(1);
    for (std::size_t i = 0; i < n; ++i) partial[i] = Op::apply(load(first[i]), load(second[i]));
    for (int k = 2; k + 1 < args.source_count; ++k) {
      const Stored* next = source(k);
      for (std::size_t i = 0; i < n; ++i) partial[i] = Op::apply(partial[i], load(next[i]));
    }
    MPIGDR_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < n; ++i) dst[i] = store(Op::apply(partial[i], load(last[i])));
  }
}

// Sums of one codec, scaled only if the arguments ask for it.
template <typename Codec>
void fold_sum(const ReduceArgs& args) {
  if (args.factor == 1.0 && args.divisor == 1)
    fold<Codec, Add, false>(args);
  else
    fold<Codec, Add, true>(args);
}

// Every operation that real floats have.
template <typename Codec>
void fold_real(const ReduceArgs& args) {
  switch (args.op) {
    case ReduceOp::Product:
      return fold<Codec, Multiply, false>(args);
    case ReduceOp::Min:
      return fold<Codec, Minimum, false>(args);
    case ReduceOp::Max:
      return fold<Codec, Maximum, false>(args);
    default:
      return fold_sum<Codec>(args);
  }
}

}  // namespace mpigdr::host::MPIGDR_ISA
