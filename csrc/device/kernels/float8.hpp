// Conversions of the 8-bit floats to and from float32, bit for bit those of torch 2.13
// (torch/headeronly/util/ Float8_*.h): to nearest, ties to even. Overflow becomes infinity (E5M2), the
// largest finite number (E4M3FN, also for infinity) or NaN (others).
//
// Formats. E4M3FN, E5M2: OCP 8-bit Floating Point Specification 1.0. FNUZ: Noune et al., "8-bit Numerical
// Formats for Deep Neural Networks", arXiv:2206.02915. E8M0FNU: OCP Microscaling Formats Specification 1.0.
#pragma once

#include <bit>
#include <cstdint>

#include "device/kernels/portable.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

// condition ? a : b, by masks: a conditional expression may become a branch, which is not vectorised.
MPI_GDR_PORTABLE constexpr std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

enum class Specials : std::uint8_t {
  Ieee,       // the largest exponent holds infinity and NaNs
  OneNan,     // FN: all ones below the sign is NaN, no infinity; overflow saturates
  MinusZero,  // FNUZ: 0x80 is the only NaN, no infinity and no minus zero
};

// A sign, an exponent with this bias, then kMantissa bits.
template <int kMantissa, int kBias, Specials kSpecials>
struct Float8Codec {
  using Stored = std::uint8_t;
  using Folded = float;
  static constexpr bool kShortSpan = true;  // see ShortSpan

  MPI_GDR_PORTABLE static Folded load(Stored v) {
    const std::uint32_t magnitude = v & 0x7fu;
    const std::uint32_t sign = static_cast<std::uint32_t>(v & 0x80u) << 24;
    const std::uint32_t normal = (magnitude << kShift) + (static_cast<std::uint32_t>(127 - kBias) << 23);
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * kUnit);
    const std::uint32_t finite = select(magnitude < kSmallestNormal, subnormal, normal);
    if constexpr (kSpecials == Specials::Ieee)  // the mantissa distinguishes infinity and NaN
      return std::bit_cast<float>(sign | finite | select(magnitude >= kInfinity, 0x7f800000u, 0u));
    else if constexpr (kSpecials == Specials::OneNan)
      return std::bit_cast<float>(sign | select(magnitude == 0x7fu, 0x7fc00000u, finite));
    else
      return std::bit_cast<float>(select(v == 0x80u, 0x7fc00000u, sign | finite));
  }

  MPI_GDR_PORTABLE static Stored store(Folded v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t sign = (bits >> 24) & 0x80u;
    // Half an ulp minus one bit, plus the lowest kept bit: ties go to even. A carry increments the exponent.
    const std::uint32_t half = (1u << (kShift - 1)) - 1u;
    const std::uint32_t normal =
        (magnitude - (static_cast<std::uint32_t>(127 - kBias) << 23) + half + ((magnitude >> kShift) & 1u)) >>
        kShift;
    // The ulp of this number is the smallest subnormal: the addition rounds.
    constexpr std::uint32_t grid = static_cast<std::uint32_t>(127 - kBias + kShift + 1) << 23;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(grid)) - grid;
    const std::uint32_t finite =
        select(magnitude < (static_cast<std::uint32_t>(128 - kBias) << 23), subnormal, normal);
    if constexpr (kSpecials == Specials::Ieee) {
      const std::uint32_t special = select(magnitude > 0x7f800000u, 0x7fu, kInfinity);
      return static_cast<Stored>(sign | select(magnitude >= kOverflow, special, finite));
    } else if constexpr (kSpecials == Specials::OneNan) {
      const std::uint32_t capped = select((magnitude >= kOverflow) | (finite == 0x7fu), 0x7eu, finite);
      return static_cast<Stored>(sign | select(magnitude > 0x7f800000u, 0x7fu, capped));
    } else {
      const std::uint32_t signed_finite = select(finite == 0, 0u, sign | finite);
      return static_cast<Stored>(select(magnitude >= kOverflow, 0x80u, signed_finite));
    }
  }

 private:
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kSmallestNormal = 1u << kMantissa;
  static constexpr std::uint32_t kInfinity = 0x7fu & ~((1u << kMantissa) - 1u);  // of E5M2
  static constexpr float kUnit =                                                 // the smallest subnormal
      std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - kBias - kMantissa) << 23);
  // The smallest magnitude, as float32 bits, that always overflows: it converts to the pattern after the
  // largest finite one. Smaller values that round up to it get the same pattern by the carry.
  static constexpr std::uint32_t kOverflow = ((kSpecials == Specials::Ieee     ? kInfinity
                                               : kSpecials == Specials::OneNan ? 0x7fu
                                                                               : 0x80u)
                                              << kShift) +
                                             (static_cast<std::uint32_t>(127 - kBias) << 23);
};

using Float8E4M3FNCodec = Float8Codec<3, 7, Specials::OneNan>;
using Float8E5M2Codec = Float8Codec<2, 15, Specials::Ieee>;
using Float8E4M3FNUZCodec = Float8Codec<3, 8, Specials::MinusZero>;
using Float8E5M2FNUZCodec = Float8Codec<2, 16, Specials::MinusZero>;

// The exponent of a float32: 2^-127 .. 2^127, 0xff is NaN. Signs are lost, zero becomes 2^-127, as in torch.
struct Float8E8M0FNUCodec {
  using Stored = std::uint8_t;
  using Folded = float;
  MPI_GDR_PORTABLE static Folded load(Stored v) {
    const std::uint32_t bits = static_cast<std::uint32_t>(v) << 23;
    return std::bit_cast<float>(select(v == 0, 0x00400000u, select(v == 0xffu, 0x7fc00000u, bits)));
  }
  MPI_GDR_PORTABLE static Stored store(Folded v) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(v) & 0x7fffffffu;
    // Ties between powers of two round up. The tie of subnormals, 2^-127, rounds down, to pattern 0.
    const std::uint32_t tie_up = select(magnitude >= 0x00800000u, 1u, 0u);
    const std::uint32_t rounded = (magnitude + 0x003fffffu + tie_up) >> 23;
    return static_cast<Stored>(select(magnitude >= 0x7f800000u, 0xffu, rounded));
  }
};

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
