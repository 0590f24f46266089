// PTX's instructions on the bits of registers. Where PTX leaves a result undefined, this is the GPUs' result.
#pragma once

#include <cmath>
#include <limits>

#include "gpu/ptx_types.hpp"

namespace fakecuda::ptx {

template <typename T>
inline constexpr bool kFloating = !std::is_integral_v<T>;

template <typename T>
T as(Bits<T> bits) {
  return std::bit_cast<T>(bits);
}

// Single and half precision have one NaN; doubles keep the payload.
template <typename T>
Bits<T> bits(T value) {
  if constexpr (sizeof(T) < 8 && kFloating<T>)
    if (value != value) return std::numeric_limits<std::make_signed_t<Bits<T>>>::max();
  return std::bit_cast<Bits<T>>(value);
}

// ---- arithmetic: floats round to nearest, integers wrap ----

template <typename T>
Bits<T> add(Bits<T> a, Bits<T> b) {
  if constexpr (kFloating<T>) return bits<T>(as<T>(a) + as<T>(b));
  return static_cast<Bits<T>>(u64{a} + b);
}

template <typename T>
Bits<T> sub(Bits<T> a, Bits<T> b) {
  if constexpr (kFloating<T>) return bits<T>(as<T>(a) - as<T>(b));
  return static_cast<Bits<T>>(u64{a} - b);
}

template <typename T>
Bits<T> mul(Bits<T> a, Bits<T> b) {
  if constexpr (kFloating<T>) return bits<T>(as<T>(a) * as<T>(b));
  return static_cast<Bits<T>>(u64{a} * b);
}

template <typename T>
Unsigned<2 * sizeof(T)> mul_wide(Bits<T> a, Bits<T> b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, s64, u64>;
  return static_cast<Unsigned<2 * sizeof(T)>>(Wide{as<T>(a)} * Wide{as<T>(b)});
}

// Division by zero: all ones. Minimum by -1: itself.
template <typename T>
Bits<T> div(Bits<T> a, Bits<T> b) {
  if constexpr (kFloating<T>)
    return bits<T>(as<T>(a) / as<T>(b));
  else if (b == 0)
    return static_cast<Bits<T>>(-1);
  else if (std::is_signed_v<T> && as<T>(b) == T(-1))
    return sub<T>(0, a);
  else
    return static_cast<Bits<T>>(as<T>(a) / as<T>(b));
}

template <typename T>
Bits<T> rem(Bits<T> a, Bits<T> b) {
  if (b == 0) return a;
  return sub<T>(a, mul<T>(div<T>(a, b), b));
}

template <typename T>
Bits<T> min(Bits<T> a, Bits<T> b) {
  return as<T>(b) < as<T>(a) ? b : a;
}

template <typename T>
Bits<T> max(Bits<T> a, Bits<T> b) {
  return as<T>(a) < as<T>(b) ? b : a;
}

// ---- bits ----

// Shifts by the width or more leave zeros, or copies of the sign.
template <typename T>
Bits<T> shl(Bits<T> a, u32 by) {
  return static_cast<Bits<T>>(by < 8 * sizeof(T) ? u64{a} << by : 0);
}

template <typename T>
Bits<T> shr(Bits<T> a, u32 by) {
  constexpr u32 kWidth = 8 * sizeof(T);
  if (by >= kWidth && !std::is_signed_v<T>) return 0;
  return static_cast<Bits<T>>(as<T>(a) >> (by < kWidth ? by : kWidth - 1));
}

// `count` bits of a from bit `at` on. Signed: extended by the highest of them, or by a's beyond its end.
template <typename T>
Bits<T> bfe(Bits<T> a, u32 at, u32 count) {
  constexpr u32 kWidth = 8 * sizeof(T);
  at &= 255;
  count &= 255;
  if (count == 0) return 0;
  const u32 end = at + count < kWidth ? at + count : kWidth;
  if (at >= end) return shr<T>(a, kWidth);
  return shr<T>(shl<T>(a, kWidth - end), kWidth - end + at);
}

// Inserts `count` bits of a at bit `at` of b.
template <typename T>
Bits<T> bfi(Bits<T> a, Bits<T> b, u32 at, u32 count) {
  const Bits<T> field = shl<T>(static_cast<Bits<T>>(shl<T>(1, count & 255) - 1), at & 255);
  return static_cast<Bits<T>>((b & ~field) | (shl<T>(a, at & 255) & field));
}

// Four bits of `selector` choose each byte: one of the eight of b:a, or all bits equal to its sign.
inline u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{b} << 32 | a;
  u32 out = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 which = selector >> 4 * i & 15;
    const auto byte = static_cast<u8>(bytes >> 8 * (which & 7));
    out |= u32{which & 8 ? static_cast<u8>(static_cast<s8>(byte) >> 7) : byte} << 8 * i;
  }
  return out;
}

template <typename T, typename... Parts>
T join(Parts... parts) {
  T out = 0;
  u32 at = 0;
  ((out |= static_cast<T>(T{parts} << at), at += 8 * sizeof parts), ...);
  return out;
}

// ---- conversions ----

// Takes the low bits of a wider register. To floats: to nearest. To integers: toward zero, saturating, NaN to
// 0.
template <typename To, typename From>
Value<To> cvt(u64 bits_of) {
  const From from = as<From>(static_cast<Bits<From>>(bits_of));
  if constexpr (kFloating<To>) {
    return bits<To>(static_cast<To>(from));
  } else if constexpr (kFloating<From>) {
    using Limits = std::numeric_limits<To>;
    if (from != from) return 0;
    // The maximum may not be a float; the power above it is.
    if (from >= std::ldexp(static_cast<From>(1), Limits::digits)) return Limits::max();
    return from <= static_cast<From>(Limits::min()) ? Limits::min() : static_cast<To>(from);
  } else {
    return static_cast<To>(from);
  }
}

// ---- comparisons: false if one is a NaN ----

template <typename T>
bool eq(Bits<T> a, Bits<T> b) {
  return as<T>(a) == as<T>(b);
}
template <typename T>
bool ne(Bits<T> a, Bits<T> b) {
  return as<T>(a) < as<T>(b) || as<T>(b) < as<T>(a);
}
template <typename T>
bool lt(Bits<T> a, Bits<T> b) {
  return as<T>(a) < as<T>(b);
}
template <typename T>
bool le(Bits<T> a, Bits<T> b) {
  return as<T>(a) <= as<T>(b);
}
template <typename T>
bool gt(Bits<T> a, Bits<T> b) {
  return lt<T>(b, a);
}
template <typename T>
bool ge(Bits<T> a, Bits<T> b) {
  return le<T>(b, a);
}
template <typename T>
bool nan(Bits<T> a, Bits<T> b) {
  return as<T>(a) != as<T>(a) || as<T>(b) != as<T>(b);
}

}  // namespace fakecuda::ptx
