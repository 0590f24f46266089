// Sums rounded once (ReduceArgs::exact). A block is summed in doubles with the errors of the additions kept
// in further doubles, the terms, which is exact where nothing falls out of the last one. A block where
// something does is summed again with more terms, and its elements for which that is not enough by a
// Superaccumulator. Only host/fold.hpp includes this.
//
// Sources: TwoSum of Knuth, The Art of Computer Programming 2, 4.2.2; the sum of three terms and rounding to
// odd of Boldo, Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding
// to odd" (IEEE Transactions on Computers 57, 2008).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/device.hpp"
#include "device/host/superaccumulator.hpp"
#include "device/kernels/codecs.hpp"

namespace mpigdr::kernels::MPIGDR_ISA {

// Terms of a sum, blocks of each: 8 KiB, with what is loaded.
inline constexpr std::size_t kExactBlock = 256;
inline constexpr int kMostTerms = 3;

// The bits of a number but its sign: 0 for zeros alone.
inline std::uint64_t nonzero(double v) { return std::bit_cast<std::uint64_t>(v) << 1; }
inline double magnitude(double v) { return v < 0 ? -v : v; }

// a + b, and its error, which is NaN if the sum is no finite number.
struct TwoSum {
  double sum, error;
  TwoSum(double a, double b) : sum(a + b) {
    const double from_b = sum - a;
    error = (a - (sum - from_b)) + (b - from_b);
  }
};

// `nearest` + `rest`, of which the first is the sum rounded to nearest, rounded to odd instead.
inline double to_odd(double nearest, double rest) {
  std::uint64_t bits = std::bit_cast<std::uint64_t>(nearest);
  bits -= ((rest < 0) & (nearest > 0)) | ((rest > 0) & (nearest < 0));
  return std::bit_cast<double>(bits | ((rest < 0) | (rest > 0)));
}

inline float to_odd_float(double v) {
  const float nearest = static_cast<float>(v);
  const double back = nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  bits -= magnitude(back) > magnitude(v);
  return std::bit_cast<float>(bits | (back != v));
}

// v - quotient * divisor, exactly, where the quotient is v / divisor rounded to nearest and nothing
// underflows: the products with either half of the quotient have at most 53 bits.
static_assert(kMostExactSources <= 1 << 26);
inline double remainder(double v, double quotient, double divisor) {
  const double high =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(quotient) & ~((std::uint64_t{1} << 27) - 1));
  return (v - high * divisor) - (quotient - high) * divisor;
}

// The exact sum of the terms over the divisor: rounded to nearest if kNearest, else to odd. `unsure` gets
// bits where this may be wrong.
template <int kTerms, bool kNearest, bool kDivided>
double rounded(double a, double b, double c, double divisor, std::uint64_t& unsure) {
  double head = a, tail = 0;
  if constexpr (kTerms == 2) {
    const TwoSum sum(a, b);
    head = sum.sum, tail = sum.error;
  } else if constexpr (kTerms == 3) {
    const TwoSum low(b, c), high(a, low.sum);
    const TwoSum rest(high.error, low.error);
    const TwoSum all(high.sum, to_odd(rest.sum, rest.error));
    if constexpr (!kDivided) {
      head = all.sum, tail = all.error;
    } else {  // a quotient needs the sum itself
      const TwoSum again(high.sum, rest.sum);
      head = again.sum, tail = again.error;
      unsure |= nonzero(rest.error);
    }
  }
  if constexpr (kTerms > 1) {
    unsure |= nonzero(tail - tail);                   // infinities and NaNs
    head = tail == 0 && b == 0 && c == 0 ? a : head;  // the sign of zero
  }
  if constexpr (!kDivided) return kNearest ? head : to_odd(head, tail);
  const auto tiny = [](double v) { return static_cast<std::uint64_t>((v != 0) & (magnitude(v) < 0x1p-900)); };
  const double quotient = head / divisor;
  const TwoSum rest(remainder(head, quotient, divisor), tail);
  if constexpr (kTerms == 1) return to_odd(quotient, rest.sum);
  const double low = rest.sum / divisor;
  const double below = to_odd(low, remainder(rest.sum, low, divisor));
  unsure |= nonzero(rest.error) | tiny(head) | tiny(rest.sum);
  const TwoSum both(quotient, below);
  return both.sum == 0 ? quotient : kNearest ? both.sum : to_odd(both.sum, both.error);
}

// Whether sums in double are exact by themselves, of up to kMostExactSources.
template <typename Codec>
concept ShortSpan = requires { Codec::kShortSpan; };

template <typename Codec>
class ExactFold {
  using Stored = typename Codec::Stored;
  using Folded = typename Codec::Folded;
  static constexpr bool kDouble = std::is_same_v<Folded, double>;

 public:
  explicit ExactFold(const ReduceArgs& args) : args_(args), divisor_(args.divisor) {}

  void run() {
    for (base_ = 0; base_ < args_.count; base_ += kExactBlock) {
      count_ = std::min(args_.count - base_, kExactBlock);
      if (divisor_ == 1)
        block<false>();
      else
        block<true>();
    }
  }

 private:
  template <bool kDivided>
  void block() {
    constexpr int kFirst = kDouble ? 2 : 1;
    if (sum<kFirst, kDivided>() != 0 && sum<kMostTerms, kDivided>() != 0) {
      for (std::size_t i = 0; i < count_; ++i)
        if (unsure_[i]) result_[i] = slowly(i);
    }
    store();
  }

  // Element by element what has a nonzero `unsure_`; returns all of them together.
  template <int kTerms, bool kDivided>
  std::uint64_t sum() {
    constexpr bool kChecked = kTerms > 1 || !ShortSpan<Codec>;
    constexpr bool kEach = kTerms == kMostTerms;
    load(0, head_);
    for (std::size_t i = 0; i < count_; ++i) {
      if constexpr (kTerms > 1) low_[i] = 0;
      if constexpr (kTerms > 2) lowest_[i] = 0;
      if constexpr (kEach) unsure_[i] = 0;
    }
    std::uint64_t all = 0;
    for (int k = 1; k < args_.source_count; ++k) {
      load(k, next_);
      std::uint64_t unsure = 0;
      for (std::size_t i = 0; i < count_; ++i) {
        const TwoSum first(head_[i], next_[i]);
        head_[i] = first.sum;
        double error = first.error;
        if constexpr (kTerms > 1) {
          const TwoSum second(low_[i], error);
          low_[i] = second.sum;
          error = second.error;
        }
        if constexpr (kTerms > 2) {
          const TwoSum third(lowest_[i], error);
          lowest_[i] = third.sum;
          error = third.error;
        }
        if constexpr (kChecked) unsure |= nonzero(error);
        if constexpr (kEach) unsure_[i] |= nonzero(error);
      }
      all |= unsure;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      std::uint64_t unsure = 0;
      result_[i] = rounded<kTerms, kDouble, kDivided>(head_[i], kTerms > 1 ? low_[i] : 0,
                                                      kTerms > 2 ? lowest_[i] : 0, divisor_, unsure);
      if constexpr (kEach) unsure_[i] |= unsure;
      all |= unsure;
    }
    return all;
  }

  double slowly(std::size_t i) const {
    host::Superaccumulator all;
    for (int k = 0; k < args_.source_count; ++k) all.add(Codec::load(source(k)[i]));
    return all.quotient(args_.divisor, kDouble ? host::Rounding::Nearest : host::Rounding::ToOdd);
  }

  const Stored* source(int k) const { return static_cast<const Stored*>(args_.sources[k]) + base_; }

  void load(int k, double* to) {
    const Stored* const from = source(k);
    std::size_t i = 0;
    if constexpr (kInOrder) {
      for (; i + kStep <= count_; i += kStep) {
        alignas(kVectorBytes) float values[kStep];
        Codec::load(from + i, reinterpret_cast<Floats*>(values));
        for (std::size_t v = 0; v < kStep; ++v) to[i + v] = values[v];
      }
    }
    for (; i < count_; ++i) to[i] = Codec::load(from[i]);
  }

  void store() {
    Stored* const to = static_cast<Stored*>(args_.dst) + base_;
    if constexpr (std::is_floating_point_v<Stored>) {
      for (std::size_t i = 0; i < count_; ++i) to[i] = static_cast<Stored>(result_[i]);
      return;
    }
    std::size_t i = 0;
    if constexpr (kInOrder) {
      for (; i + kStep <= count_; i += kStep) {
        alignas(kVectorBytes) float values[kStep];
        for (std::size_t v = 0; v < kStep; ++v) values[v] = to_odd_float(result_[i + v]);
        Codec::store(reinterpret_cast<const Floats*>(values), to + i);
      }
    }
    for (; i < count_; ++i) to[i] = Codec::store(to_odd_float(result_[i]));
  }

  // Codecs that convert one register full, whose elements are then in order.
  static constexpr std::size_t vectors() {
    if constexpr (requires { Codec::kVectors; })
      return Codec::kVectors;
    else
      return 0;
  }
  static constexpr bool kInOrder = vectors() == 1;
  static constexpr std::size_t kStep = kFloats;

  const ReduceArgs& args_;
  const double divisor_;
  std::size_t base_ = 0, count_ = 0;
  alignas(64) double head_[kExactBlock], low_[kExactBlock], lowest_[kExactBlock], next_[kExactBlock],
      result_[kExactBlock];
  std::uint64_t unsure_[kExactBlock];
};

template <typename Codec>
void fold_exactly(const ReduceArgs& args) {
  ExactFold<Codec>(args).run();
}

}  // namespace mpigdr::kernels::MPIGDR_ISA
