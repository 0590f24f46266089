// Sums rounded once (ReduceArgs::exact). A strip of elements is summed in doubles, with the errors of the
// additions in further doubles, the terms. If an error falls out of the last of few terms, the strip is
// summed again with more. Elements for which that is not enough, or whose partial sums overflow, use a
// Superaccumulator. Only host/fold.hpp includes this.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "device/device.hpp"
#include "device/host/exact_arithmetic.hpp"
#include "device/host/superaccumulator.hpp"
#include "device/kernels/codecs.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

inline constexpr int kMostTerms = 8;  // of a sum; as many sources are always summed exactly

// Codecs whose sums of up to kMostExactSources values are exact in double.
template <typename Codec>
concept ShortSpan = requires { Codec::kShortSpan; };

// A strip of the codec's type as doubles, in the order that is cheapest.
template <typename Codec>
struct Strip {
  using Stored = typename Codec::Stored;
  // Registers. Sums of doubles take two each, and AVX2 has 16.
  static constexpr int kParts = std::is_same_v<Stored, double> && kVectorBytes < 64 ? 2 : 4;
  static constexpr std::size_t kElements = kParts * kLanes;

  static void load(const Stored* from, Doubles* to) {
    if constexpr (std::is_same_v<Stored, double>) {
      for (int part = 0; part < kParts; ++part) std::memcpy(to + part, from + part * kLanes, sizeof *to);
    } else if constexpr (std::is_same_v<Stored, float>) {
      widen(from, to);
    } else {
      alignas(kVectorBytes) float values[kElements];
      if constexpr (requires { Codec::kVectors; })
        for (std::size_t i = 0; i < kElements; i += Codec::kVectors * kFloats)
          Codec::load(from + i, reinterpret_cast<Floats*>(values + i));
      else
        for (std::size_t i = 0; i < kElements; ++i) values[i] = Codec::load(from[i]);
      widen(values, to);
    }
  }

  // Sums of 16 and 8 bits are rounded to odd.
  static void store(const Doubles* from, Stored* to) {
    if constexpr (std::is_same_v<Stored, double>) {
      for (int part = 0; part < kParts; ++part) std::memcpy(to + part * kLanes, from + part, sizeof *from);
    } else if constexpr (std::is_same_v<Stored, float>) {
      for (int part = 0; part < kParts; ++part) {
        const Singles values = __builtin_convertvector(from[part], Singles);
        std::memcpy(to + part * kLanes, &values, sizeof values);
      }
    } else {
      alignas(kVectorBytes) float values[kElements];
      for (int part = 0; part < kParts; ++part) {
        const Singles odd = to_odd_float(from[part]);
        std::memcpy(values + part * kLanes, &odd, sizeof odd);
      }
      if constexpr (requires { Codec::kVectors; })
        for (std::size_t i = 0; i < kElements; i += Codec::kVectors * kFloats)
          Codec::store(reinterpret_cast<const Floats*>(values + i), to + i);
      else
        for (std::size_t i = 0; i < kElements; ++i) to[i] = Codec::store(values[i]);
    }
  }

 private:
  static void widen(const float* from, Doubles* to) {
    for (int part = 0; part < kParts; ++part) {
      Singles values;
      std::memcpy(&values, from + part * kLanes, sizeof values);
      to[part] = __builtin_convertvector(values, Doubles);
    }
  }
};

template <typename Codec>
class ExactFold {
  using Stored = typename Codec::Stored;
  static constexpr int kParts = Strip<Codec>::kParts;
  static constexpr std::size_t kStrip = Strip<Codec>::kElements;
  static constexpr bool kDouble = std::is_same_v<Stored, double>;

 public:
  explicit ExactFold(const ReduceArgs& args)
      : args_(args), divisor_(args.divisor), inverse_(std::has_single_bit(args.divisor) ? 1 / divisor_ : 0) {}

  void run() {
    for (base_ = 0; base_ < args_.count; base_ += kStrip) {
      count_ = std::min(args_.count - base_, kStrip);
      sum();
      store();
    }
  }

 private:
  // Begins with the number of terms of the previous strip.
  void sum() {
    if constexpr (!kDouble)
      if (terms_ == 1 && sum_quickly<1>()) return;
    if (terms_ > 2 || !sum_quickly<2>()) sum_fully();
  }

  template <int kTerms>
  bool sum_quickly() {
    Doubles head[kParts], low[kParts]{}, next[kParts];
    load(0, head);
    Longs lost{};
    for (int k = 1; k < args_.source_count; ++k) {
      load(k, next);
      for (int part = 0; part < kParts; ++part) {
        if constexpr (ShortSpan<Codec>) {
          head[part] += next[part];
          continue;
        }
        const TwoSum first(head[part], next[part]);
        head[part] = first.sum;
        if constexpr (kTerms == 2) {
          const TwoSum second(low[part], first.error);
          low[part] = second.sum;
          lost |= bits(second.error);
        } else {
          lost |= bits(first.error);
        }
      }
    }
    if (any(lost)) {
      terms_ = kTerms + 1;
      return false;
    }
    Longs wrong{}, second{};
    for (int part = 0; part < kParts; ++part) {
      wrong |= divide_quickly<kTerms>(head[part], low[part], result_[part]);
      second |= bits(low[part]);
    }
    terms_ = kDouble || any(second) ? 2 : 1;
    return !any(wrong);
  }

  // The quotient of one or two terms. Returns the lanes where it is wrong.
  template <int kTerms>
  Longs divide_quickly(Doubles head, Doubles low, Doubles& result) const {
    if constexpr (kTerms == 1) {
      result = inverse_ != 0 ? head * inverse_ : quotient_to_odd(head, divisor_);
      return Longs{};
    }
    const TwoSum both(head, low);
    const Doubles sum = kDouble ? both.sum : to_odd(both.sum, both.error);
    result = select(std::bit_cast<Longs>(low == 0), head, sum);  // the sign of zero
    if (inverse_ == 1) return Longs{};
    const Longs wrong = kDouble ? is_special(result) | is_tiny(result) : Longs{};
    if (inverse_ != 0)
      result *= inverse_;
    else
      result = select(std::bit_cast<Longs>(result == 0), result,
                      quotient<kDouble>(both.sum, both.error, divisor_));
    return wrong;
  }

  void sum_fully() {
    Doubles terms[kMostTerms][kParts], next[kParts];
    Longs unsure[kParts]{};
    load(0, terms[0]);
    int used = 1;
    for (int k = 1; k < args_.source_count; ++k) {
      load(k, next);
      Longs lost{};
      int t = 0;
      do {
        lost = Longs{};
        for (int part = 0; part < kParts; ++part) {
          const TwoSum both(terms[t][part], next[part]);
          terms[t][part] = both.sum;
          next[part] = both.error;
          lost |= bits(both.error);
        }
      } while (any(lost) && ++t < used);
      if (t < used) continue;
      if (used < kMostTerms)
        std::copy_n(next, kParts, terms[used++]);
      else
        for (int part = 0; part < kParts; ++part) unsure[part] |= std::bit_cast<Longs>(next[part] != 0);
    }
    terms_ = std::clamp(used, 2, 3);
    Longs all{};
    for (int part = 0; part < kParts; ++part) {
      Doubles own[kMostTerms];
      for (int t = 0; t < used; ++t) own[t] = terms[t][part];
      unsure[part] |= separate(own, used);
      result_[part] = rounded(terms[0][part], own, used, unsure[part]);
      all |= unsure[part];
    }
    if (any(all)) sum_slowly(unsure);
  }

  // The quotient of separate terms, to nearest for double, else to odd. `head`: the first before separate().
  Doubles rounded(Doubles head, const Doubles* terms, int used, Longs& unsure) const {
    const Doubles high = terms[0];
    const Doubles low = used == 1 ? Doubles{} : used == 2 ? terms[1] : to_odd(terms[1], terms[2]);
    Longs kept = std::bit_cast<Longs>(high == 0) & std::bit_cast<Longs>(head == 0);  // the sign of zero
    if constexpr (kDouble) {
      unsure |= is_special(high);
      if (divisor_ != 1) unsure |= is_tiny(high);
    } else {
      kept |= is_special(head);
      unsure &= ~kept;
    }
    Doubles result;
    if (inverse_ == 0)
      result = quotient<kDouble>(high, low, divisor_);
    else
      result = (kDouble ? high + low : to_odd(high, low)) * inverse_;
    return select(kept, head, result);
  }

  void sum_slowly(const Longs* unsure) {
    for (std::size_t i = 0; i < kStrip; ++i) {
      const std::size_t part = i / kLanes, lane = i % kLanes;
      if (unsure[part][lane] == 0) continue;
      host::Superaccumulator all;
      for (int k = 0; k < args_.source_count; ++k) {
        Doubles next[kParts];
        load(k, next);
        all.add(next[part][lane]);
      }
      result_[part][lane] =
          all.quotient(args_.divisor, kDouble ? host::Rounding::Nearest : host::Rounding::ToOdd);
    }
  }

  void load(int k, Doubles* to) const {
    const Stored* const from = static_cast<const Stored*>(args_.sources[k]) + base_;
    if (count_ == kStrip) return Strip<Codec>::load(from, to);
    Stored padded[kStrip] = {};
    std::copy_n(from, count_, padded);
    Strip<Codec>::load(padded, to);
  }

  void store() const {
    Stored* const to = static_cast<Stored*>(args_.dst) + base_;
    if (count_ == kStrip) return Strip<Codec>::store(result_, to);
    Stored padded[kStrip];
    Strip<Codec>::store(result_, padded);
    std::copy_n(padded, count_, to);
  }

  const ReduceArgs& args_;
  const double divisor_, inverse_;  // inverse_: 0 unless the divisor is a power of two
  std::size_t base_ = 0, count_ = 0;
  int terms_ = kDouble ? 2 : 1;  // 3: or more
  Doubles result_[kParts];
};

template <typename Codec>
void fold_exactly(const ReduceArgs& args) {
  ExactFold<Codec>(args).run();
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
