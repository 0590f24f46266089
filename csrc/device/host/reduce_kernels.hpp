// The elementwise loops behind host::reduce, one instance per (codec, operation, scaled).
// Plain loops over blocks that fit the first-level cache, left to the compiler's vectoriser. No state, no
// allocation. Only reduce.cpp includes this.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/device.hpp"

// dst may equal a source exactly, so a store never changes what a later iteration loads; without this promise
// the compiler guards the vector loop with an overlap check that in-place calls fail.
#if defined(__clang__)
#define MPIGDR_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define MPIGDR_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace mpigdr::host {

// A codec says how a type lies in memory (Stored) and in which type it is folded (Folded).

template <typename T>
struct FloatCodec {
  using Stored = T;
  using Folded = T;
  static Folded load(Stored v) { return v; }
  static Stored store(Folded v) { return v; }
};

// Integer arithmetic, not _Float16: the machine need not have F16C, and the loop still vectorises.
struct Float16Codec {
  using Stored = std::uint16_t;
  using Folded = float;
  static Folded load(Stored v) {
    const std::uint32_t magnitude = v & 0x7fffu;
    // The exponent bias grows by 112; infinities and NaNs need the same step again to reach the all-ones
    // exponent.
    const std::uint32_t rebias = magnitude >= 0x7c00u ? (224u << 23) : (112u << 23);
    const std::uint32_t normal = (magnitude << 13) + rebias;
    // Converted as an integer, not as a float32 subnormal: right also when the CPU flushes those to zero.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
    const std::uint32_t sign = (v & 0x8000u) << 16;
    return std::bit_cast<float>(sign | (magnitude < 0x0400u ? subnormal : normal));
  }
  static Stored store(Folded v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    // Half an ulp less a bit, plus the lowest kept bit: round to nearest even. Carries run into the exponent.
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // One ulp of 0.5 is the smallest binary16 subnormal: the addition rounds for us.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                                    std::bit_cast<std::uint32_t>(0.5f);
    const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    return static_cast<Stored>(sign | (magnitude >= 0x47800000u ? special : finite));
  }
};

struct BFloat16Codec {
  using Stored = std::uint16_t;
  using Folded = float;
  static Folded load(Stored v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16); }
  static Stored store(Folded v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    // Rounding may carry a NaN into infinity; setting the quiet bit keeps it one.
    const std::uint32_t quiet = (bits >> 16) | 0x0040u;
    return static_cast<Stored>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

template <typename T>
struct IntegerCodec {
  using Stored = T;
  using Folded = T;
  static Folded load(Stored v) { return v; }
  static Stored store(Folded v) { return v; }
};

struct BoolCodec {
  using Stored = std::uint8_t;
  using Folded = std::uint8_t;
  static Folded load(Stored v) { return v != 0; }
  static Stored store(Folded v) { return v; }
};

// Wide enough that neither overflow nor integer promotion is undefined: results wrap.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Add {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a + b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};

struct Multiply {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a * b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};

// A NaN on the left stays because every comparison with it is false; one on the right is taken because it
// differs from itself.
struct Minimum {
  template <typename T>
  static T apply(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};

struct Maximum {
  template <typename T>
  static T apply(T a, T b) {
    return ((a < b) | (b != b)) ? b : a;
  }
};

// On values that are 0 or 1.
struct Or {
  template <typename T>
  static T apply(T a, T b) {
    return a | b;
  }
};

struct And {
  template <typename T>
  static T apply(T a, T b) {
    return a & b;
  }
};

// The multiplication before and the division after the fold, in the folding type.
template <typename T>
struct Scaling {
  explicit Scaling(const ReduceArgs& args)
      : factor(static_cast<T>(args.factor)), divisor(static_cast<T>(args.divisor)) {}
  T before(T v) const { return v * factor; }
  T after(T v) const { return v / divisor; }
  T factor, divisor;
};

template <typename T>
  requires std::is_integral_v<T>
struct Scaling<T> {
  // The quotient of 32-bit integers, truncated, is exact in double, and that division has vector
  // instructions.
  using Quotient = std::conditional_t<sizeof(T) == 8, std::int64_t, double>;
  explicit Scaling(const ReduceArgs& args) : divisor(static_cast<Quotient>(args.divisor)) {}
  T before(T v) const { return v; }
  T after(T v) const {
    // Through int32 because vector units convert doubles to nothing narrower.
    if constexpr (sizeof(T) == 8)
      return v / divisor;
    else
      return static_cast<T>(static_cast<std::int32_t>(static_cast<double>(v) / divisor));
  }
  Quotient divisor;
};

// 1024 elements of the widest type take 8 KiB: the partial results stay in the first-level cache while every
// source is streamed through once.
inline constexpr std::size_t kBlock = 1024;

template <typename Codec, typename Op, bool kScaled>
void fold(const ReduceArgs& args) {
  using Stored = typename Codec::Stored;
  using Folded = typename Codec::Folded;
  const Scaling<Folded> scaling(args);
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

}  // namespace mpigdr::host
