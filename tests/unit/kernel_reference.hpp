// A reference for host::reduce, one element at a time: short floats are decoded by definition and encoded by
// search for the nearest value, integers are folded in 128 bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/types.hpp"

namespace unit {

// Calls `body` for all operations of the type with the engine's scaling: PreMulSum by a factor, Avg by
// divisors.
template <typename Body>  // (op, factor, divisor)
void for_each_operation(mpi_gdr::DataType dtype, Body body) {
  using mpi_gdr::ReduceOp;
  for (int o = 0; o < mpi_gdr::kReduceOpCount; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (!supports(op, dtype)) continue;
    if (op == ReduceOp::Avg)
      for (const std::uint32_t divisor : {1u, 3u, 1000u}) body(op, 1.0, divisor);
    else
      body(op, op == ReduceOp::PreMulSum ? 0.3 : 1.0, 1u);
  }
}

// ---- short floats ----

// A sign, an exponent of this bias, a mantissa. Patterns below `first_special` are the finite magnitudes in
// order.
struct ShortFloat {
  int bits, mantissa_bits, bias;
  std::uint32_t first_special;
  enum { kInfinity, kSaturates, kOnlyNan } overflow;  // kOnlyNan: the sign bit alone, as in the fnuz types

  std::uint32_t sign_bit() const { return 1u << (bits - 1); }
  double magnitude(std::uint32_t pattern) const {
    const auto exponent = static_cast<int>(pattern >> mantissa_bits);
    const double mantissa = pattern & ((1u << mantissa_bits) - 1);
    const double scale = std::ldexp(1, -mantissa_bits);
    return exponent ? std::ldexp(1 + mantissa * scale, exponent - bias)
                    : std::ldexp(mantissa * scale, 1 - bias);
  }
  double decode(std::uint32_t pattern) const {
    const std::uint32_t m = pattern & (sign_bit() - 1);
    if (overflow == kOnlyNan && pattern == sign_bit()) return NAN;
    const double sign = pattern & sign_bit() ? -1 : 1;
    if (m < first_special) return sign * magnitude(m);
    return overflow == kInfinity && m == first_special ? sign * INFINITY : NAN;
  }
  std::uint32_t encode(double v) const {
    const std::uint32_t nan = overflow == kOnlyNan ? sign_bit() : sign_bit() - 1;
    if (std::isnan(v)) return nan;
    const std::uint32_t sign = std::signbit(v) ? sign_bit() : 0;
    const double m = std::fabs(v), largest = magnitude(first_special - 1);
    // A value overflows beyond half way from the largest to `first_special`, taken as finite, or at half way
    // if the largest one's pattern is odd.
    const double half_way = largest / 2 + magnitude(first_special) / 2;
    if (m > half_way || (m == half_way && (first_special - 1) % 2)) {
      if (overflow == kOnlyNan) return nan;
      return sign | (overflow == kInfinity ? first_special : first_special - 1);
    }
    std::uint32_t low = 0, high = first_special - 1;
    while (low < high) {  // the largest pattern not above m
      const std::uint32_t middle = (low + high + 1) / 2;
      if (magnitude(middle) <= m)
        low = middle;
      else
        high = middle - 1;
    }
    if (low + 1 < first_special) {
      const double below = m - magnitude(low), above = magnitude(low + 1) - m;
      low += above < below || (above == below && low % 2);
    }
    return overflow == kOnlyNan && low == 0 ? 0 : sign | low;
  }
};

inline constexpr ShortFloat kHalf{16, 10, 15, 0x7c00, ShortFloat::kInfinity};
inline constexpr ShortFloat kBFloat{16, 7, 127, 0x7f80, ShortFloat::kInfinity};
inline constexpr ShortFloat kE4M3FN{8, 3, 7, 0x7f, ShortFloat::kSaturates};
inline constexpr ShortFloat kE5M2{8, 2, 15, 0x7c, ShortFloat::kInfinity};
inline constexpr ShortFloat kE4M3FNUZ{8, 3, 8, 0x80, ShortFloat::kOnlyNan};
inline constexpr ShortFloat kE5M2FNUZ{8, 2, 16, 0x80, ShortFloat::kOnlyNan};

// float8_e8m0fnu: powers of two from 2^-127 on, 0xff is NaN, no sign.
struct PowerOfTwo {
  double decode(std::uint32_t pattern) const {
    return pattern == 0xff ? NAN : std::ldexp(1, static_cast<int>(pattern) - 127);
  }
  std::uint32_t encode(double v) const {
    const double m = std::fabs(v);
    if (!(m < decode(0xfe) * 1.5)) return 0xff;
    for (int pattern = 0xfe; pattern > 0; --pattern) {
      // Below 2^-126 torch rounds between 2^-126 and zero (which it stores as 2^-127), above between powers.
      const double half_way = pattern == 1 ? decode(0) : decode(pattern - 1) * 1.5;
      if (pattern == 1 ? m > half_way : m >= half_way) return static_cast<std::uint32_t>(pattern);
    }
    return 0;
  }
};
inline constexpr PowerOfTwo kE8M0FNU{};

// ---- the fold of one element, in the order and precision of device.hpp's contract ----

template <typename F>
F fold_float(const std::vector<F>& values, mpi_gdr::ReduceOp op, double factor, std::uint32_t divisor) {
  using mpi_gdr::ReduceOp;
  F result = values[0] * static_cast<F>(factor);
  for (std::size_t k = 1; k < values.size(); ++k) {
    const F v = values[k] * static_cast<F>(factor);
    if (op == ReduceOp::Product)
      result *= v;
    else if (op == ReduceOp::Min)
      result = std::isnan(result) || std::isnan(v) ? NAN : std::fmin(result, v);
    else if (op == ReduceOp::Max)
      result = std::isnan(result) || std::isnan(v) ? NAN : std::fmax(result, v);
    else
      result += v;
  }
  return result / static_cast<F>(divisor);
}

template <typename F>
struct Pair {
  F re, im;
  bool operator==(const Pair&) const = default;
};

template <typename F>
Pair<F> fold_complex(const std::vector<Pair<F>>& values, mpi_gdr::ReduceOp op, double factor,
                     std::uint32_t divisor) {
  if (op != mpi_gdr::ReduceOp::Product) {
    std::vector<F> re, im;
    for (const Pair<F>& v : values) re.push_back(v.re), im.push_back(v.im);
    return {fold_float(re, op, factor, divisor), fold_float(im, op, factor, divisor)};
  }
  Pair<F> result = values[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    const F a = result.re, b = result.im, c = values[k].re, d = values[k].im;
    result.re = a * c;
    result.re -= b * d;
    result.im = a * d;
    result.im += b * c;
  }
  return result;
}

template <typename T>
T fold_integer(const std::vector<T>& values, mpi_gdr::ReduceOp op, std::uint32_t divisor) {
  using mpi_gdr::ReduceOp;
  // 128 bits hold every intermediate of two operands; the cast reduces modulo 2^n.
  __extension__ using Wide = __int128;
  __extension__ using Bits = unsigned __int128;
  T result = values[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    const Wide a = result, b = values[k];
    if (op == ReduceOp::Product)
      result = static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
    else if (op == ReduceOp::Min)
      result = static_cast<T>(a < b ? a : b);
    else if (op == ReduceOp::Max)
      result = static_cast<T>(a > b ? a : b);
    else if (op == ReduceOp::BitAnd)
      result = static_cast<T>(a & b);
    else if (op == ReduceOp::BitOr)
      result = static_cast<T>(a | b);
    else if (op == ReduceOp::BitXor)
      result = static_cast<T>(a ^ b);
    else
      result = static_cast<T>(a + b);
  }
  return static_cast<T>(static_cast<Wide>(result) / divisor);
}

}  // namespace unit
