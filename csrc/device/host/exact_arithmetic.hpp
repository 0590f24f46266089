// Arithmetic on registers of doubles that keeps the rounding errors. Only host/exact_fold.hpp includes this.
//
// Sources: TwoSum of Knuth, The Art of Computer Programming 2, 4.2.2; rounding to odd of Boldo, Melquiond,
// "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd" (IEEE Transactions
// on Computers 57, 2008).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/device.hpp"
#include "device/kernels/codecs.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef std::int64_t Longs __attribute__((vector_size(kVectorBytes)));
typedef float Singles __attribute__((vector_size(kVectorBytes / 2)));  // as many as Doubles
inline constexpr std::size_t kLanes = kVectorBytes / sizeof(double);

inline Longs bits(Doubles v) { return std::bit_cast<Longs>(v); }
// A mask has all bits of a lane or none.
inline Doubles select(Longs mask, Doubles yes, Doubles no) {
  return std::bit_cast<Doubles>((mask & bits(yes)) | (~mask & bits(no)));
}
inline Doubles magnitude(Doubles v) { return std::bit_cast<Doubles>(bits(v) & INT64_MAX); }
inline Longs is_special(Doubles v) { return std::bit_cast<Longs>(v - v != 0); }  // infinite or NaN
// Too small to divide exactly.
inline Longs is_tiny(Doubles v) {
  return std::bit_cast<Longs>(v != 0) & std::bit_cast<Longs>(magnitude(v) < 0x1p-800);
}
inline bool any(Longs v) {
  std::int64_t all = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) all |= v[lane];
  return all != 0;
}

// a + b, and its error: never -0, and NaN if the sum is not finite.
struct TwoSum {
  Doubles sum, error;
  TwoSum(Doubles a, Doubles b) : sum(a + b) {
    const Doubles from_b = sum - a;
    error = (a - (sum - from_b)) + (b - from_b);
  }
};

// Turns a sum rounded to `nearest` and its error `rest` into the sum rounded to odd: truncated, with the
// lowest bit set if that is inexact. Rounding this again, to at least two bits fewer, gives the exact sum
// rounded once. An infinity, whose rest is NaN, stays.
inline Doubles to_odd(Doubles nearest, Doubles rest) {
  const Longs negative = std::bit_cast<Longs>(rest < 0);
  const Longs inexact = negative | std::bit_cast<Longs>(rest > 0);
  const Longs away = inexact & (negative ^ std::bit_cast<Longs>(nearest < 0));
  return std::bit_cast<Doubles>((bits(nearest) + away) | (inexact & 1));
}

// Rounds to odd, to 16 significant bits: enough to be rounded again to 11 bits or fewer, and as many as
// float32's subnormals have above half of bfloat16's smallest number.
inline Singles to_odd_float(Doubles v) {
  constexpr std::int64_t kLost = (std::int64_t{1} << 37) - 1;
  const Longs odd = (bits(v) | ((bits(v) & kLost) + kLost)) & ~kLost;
  return __builtin_convertvector(std::bit_cast<Doubles>(odd), Singles);
}

// Changes the terms, but not their sum, until each equals its rounded sum with the next one, which is then at
// most half a unit in the last place of the former. Zeros come last, NaNs stay. Returns unfinished lanes.
inline Longs separate(Doubles* terms, int count) {
  Longs changed;
  int passes = 0;
  do {
    changed = Longs{};
    for (int t = count - 1; t > 0; --t) {
      const TwoSum both(terms[t - 1], terms[t]);
      changed |= bits(both.sum) ^ bits(terms[t - 1]);
      terms[t - 1] = both.sum;
      terms[t] = both.error;
    }
  } while (count > 2 && any(changed) && ++passes < count);
  return count > 2 ? changed : Longs{};  // two terms need one pass
}

// v - quotient * divisor, exactly, where the quotient is v / divisor rounded to nearest and nothing
// underflows: products with either half of the quotient have at most 53 bits.
static_assert(kMostExactSources <= 1 << 26);
inline Doubles remainder(Doubles v, Doubles quotient, double divisor) {
  const Doubles high = std::bit_cast<Doubles>(bits(quotient) & ~((std::int64_t{1} << 27) - 1));
  return (v - high * divisor) - (quotient - high) * divisor;
}

inline Doubles quotient_to_odd(Doubles v, double divisor) {
  const Doubles nearest = v / divisor;
  return to_odd(nearest, remainder(v, nearest, divisor));
}

// (high + low) / divisor, rounded to nearest if kNearest, else to odd. `high` is the rounded sum of both, and
// 0 or at least 2^-800.
template <bool kNearest>
Doubles quotient(Doubles high, Doubles low, double divisor) {
  const Doubles nearest = high / divisor;
  const TwoSum rest(remainder(high, nearest, divisor), low);
  const Doubles odd = to_odd(rest.sum, rest.error);
  // The quotient of a tiny rest may underflow to -0. Any value below the units of `nearest` is equivalent.
  const Doubles tiny = std::bit_cast<Doubles>((bits(odd) & INT64_MIN) | bits(Doubles{} + 0x1p-900));
  const Longs less = std::bit_cast<Longs>(odd != 0) & std::bit_cast<Longs>(magnitude(odd) < 0x1p-900);
  const TwoSum both(nearest, quotient_to_odd(select(less, tiny, odd), divisor));
  return kNearest ? both.sum : to_odd(both.sum, both.error);
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
