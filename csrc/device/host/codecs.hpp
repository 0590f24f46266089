// How each element type lies in memory (Stored) and in which type it is folded (Folded); the 8-bit floats are
// in float8.hpp. Branch-free on values, so that the loops around them vectorise. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "device/host/isa.hpp"

namespace mpigdr::host::MPIGDR_ISA {

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

// Real and imaginary part, as they lie in memory.
template <typename T>
struct Complex {
  T re, im;
};

// Part: the codec of either part.
template <typename Part>
struct ComplexCodec {
  using Stored = Complex<typename Part::Stored>;
  using Folded = Complex<typename Part::Folded>;
  static Folded load(Stored v) { return {Part::load(v.re), Part::load(v.im)}; }
  static Stored store(Folded v) { return {Part::store(v.re), Part::store(v.im)}; }
};

struct BoolCodec {
  using Stored = std::uint8_t;
  using Folded = std::uint8_t;
  static Folded load(Stored v) { return v != 0; }
  static Stored store(Folded v) { return v; }
};

}  // namespace mpigdr::host::MPIGDR_ISA
