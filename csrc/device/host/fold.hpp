// The elementwise loop of host::reduce (MPI_GDR_FOLD of kernels/portable.hpp): plain loops over blocks that
// fit the first-level cache, for the compiler's vectoriser. Only kernels/fold.hpp includes this.
#pragma once

#include <cstddef>
#include <type_traits>

#include "device/device.hpp"
#include "device/host/exact_fold.hpp"
#include "device/kernels/codecs.hpp"
#include "device/kernels/operations.hpp"

// dst may equal a source exactly, so a store never changes what a later iteration loads. Without this promise
// the vector loop has an overlap check that in-place calls fail.
#if defined(__clang__)
#define MPI_GDR_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define MPI_GDR_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace mpi_gdr::kernels::MPI_GDR_ISA {

using Args = ReduceArgs;

// 1024 elements of the widest type take 16 KiB: partial results stay in the first-level cache.
inline constexpr std::size_t kBlock = 1024;

// Codecs that convert kVectors registers at once, better than the vectoriser.
template <typename Codec>
concept ConvertsVectors = requires { Codec::kVectors; };

// As fold(), on whole registers; returns the number of elements done.
template <ConvertsVectors Codec, typename Op, bool kScaled>
std::size_t fold_vectors(const ReduceArgs& args) {
  using Stored = typename Codec::Stored;
  constexpr std::size_t kStep = Codec::kVectors * kFloats;
  [[maybe_unused]] const std::conditional_t<kScaled, Scaling<float>, NoScaling> scaling(args);
  const auto load = [&](const Stored* from, Floats* to) {
    Codec::load(from, to);
    if constexpr (kScaled)
      for (std::size_t v = 0; v < Codec::kVectors; ++v) to[v] = scaling.before(to[v]);
  };
  const auto add = [&](const Stored* from, Floats* partial) {
    Floats next[Codec::kVectors];
    load(from, next);
    for (std::size_t v = 0; v < Codec::kVectors; ++v) partial[v] = Op::apply(partial[v], next[v]);
  };
  const auto store = [&](Floats* partial, Stored* to) {
    if constexpr (kScaled)
      for (std::size_t v = 0; v < Codec::kVectors; ++v) partial[v] = scaling.after(partial[v]);
    Codec::store(partial, to);
  };
  const std::size_t end = args.count - args.count % kStep;
  const auto source = [&](int k) { return static_cast<const Stored*>(args.sources[k]); };
  Stored* const dst = static_cast<Stored*>(args.dst);
  Floats partial[Codec::kVectors];
  if (args.source_count == 2) {  // saves the loop over sources, as expensive as the sum
    const Stored *const first = source(0), *const second = source(1);
    for (std::size_t base = 0; base < end; base += kStep) {
      load(first + base, partial);
      add(second + base, partial);
      store(partial, dst + base);
    }
    return end;
  }
  for (std::size_t base = 0; base < end; base += kStep) {
    load(source(0) + base, partial);
    for (int k = 1; k < args.source_count; ++k) add(source(k) + base, partial);
    store(partial, dst + base);
  }
  return end;
}

template <typename Codec, typename Op, bool kScaled>
void fold(const ReduceArgs& args) {
  std::size_t done = 0;
  if constexpr (ConvertsVectors<Codec>) done = fold_vectors<Codec, Op, kScaled>(args);
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
  for (std::size_t base = done; base < args.count; base += kBlock) {
    const std::size_t n = args.count - base < kBlock ? args.count - base : kBlock;
    Stored* dst = static_cast<Stored*>(args.dst) + base;
    const auto source = [&](int k) { return static_cast<const Stored*>(args.sources[k]) + base; };
    const Stored* last = source(args.source_count - 1);
    if (args.source_count == 1) {
      MPI_GDR_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < n; ++i) dst[i] = store(load(last[i]));
      continue;
    }
    const Stored* first = source(0);
    if (args.source_count == 2) {
      MPI_GDR_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < n; ++i) dst[i] = store(Op::apply(load(first[i]), load(last[i])));
      continue;
    }
    const Stored* second = source(1);
    for (std::size_t i = 0; i < n; ++i) partial[i] = Op::apply(load(first[i]), load(second[i]));
    for (int k = 2; k + 1 < args.source_count; ++k) {
      const Stored* next = source(k);
      for (std::size_t i = 0; i < n; ++i) partial[i] = Op::apply(partial[i], load(next[i]));
    }
    MPI_GDR_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < n; ++i) dst[i] = store(Op::apply(partial[i], load(last[i])));
  }
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
