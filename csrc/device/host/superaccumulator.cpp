#include "device/host/superaccumulator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mpi_gdr::host {

void Superaccumulator::add(double value) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  only_minus_zeros_ &= bits == std::uint64_t{1} << 63;
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (exponent == 0x7ff) {
    special_ += value;
    has_special_ = true;
    return;
  }
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t mantissa = exponent ? fraction | std::uint64_t{1} << 52 : fraction;
  const int shift = std::max(exponent, 1) - 1075 - kLowest;
  std::int64_t* const limb = limbs_ + shift / 32;
  const int within = shift % 32;
  begin_ = std::min(begin_, shift / 32);
  end_ = std::max(end_, shift / 32 + 3);
  const std::uint64_t low = (mantissa & 0xffffffffu) << within, high = (mantissa >> 32) << within;
  const std::int64_t digits[] = {static_cast<std::int64_t>(low & 0xffffffffu),
                                 static_cast<std::int64_t>((low >> 32) + (high & 0xffffffffu)),
                                 static_cast<std::int64_t>(high >> 32)};
  const bool negative = bits >> 63;
  for (int d = 0; d < 3; ++d) limb[d] += negative ? -digits[d] : digits[d];
}

double Superaccumulator::quotient(std::uint32_t divisor, Rounding rounding) {
  if (has_special_) return special_;
  const auto carry = [&] {
    for (int i = begin_; i < end_; ++i) {
      limbs_[i + 1] += limbs_[i] >> 32;
      limbs_[i] &= 0xffffffff;
    }
  };
  carry();
  const bool negative = limbs_[end_] < 0;
  if (negative) {
    for (int i = begin_; i <= end_; ++i) limbs_[i] = -limbs_[i];
    carry();
  }
  std::uint64_t rest = 0;
  begin_ = std::max(begin_ - 4, 0);  // a quotient has digits below those of the sum
  for (int i = end_; i >= begin_ && divisor != 1; --i) {
    rest = rest << 32 | static_cast<std::uint64_t>(limbs_[i]);
    limbs_[i] = static_cast<std::int64_t>(rest / divisor);
    rest %= divisor;
  }
  int top = end_;
  while (top >= begin_ && limbs_[top] == 0) --top;
  if (top < begin_) return only_minus_zeros_ ? -0.0 : 0.0;

  const int highest = 32 * top + std::bit_width(static_cast<std::uint64_t>(limbs_[top])) - 1;
  const int lowest = std::max(highest - 52, -1074 - kLowest);  // bit of the result
  // The 53 bits of the result and the bit below them are in at most three limbs.
  const int first = (lowest - 1) / 32, within = (lowest - 1) % 32;
  std::uint64_t mantissa = static_cast<std::uint64_t>(limbs_[first]) >> within |
                           static_cast<std::uint64_t>(limbs_[first + 1]) << (32 - within);
  if (within > 0) mantissa |= static_cast<std::uint64_t>(limbs_[first + 2]) << (64 - within);
  mantissa &= (std::uint64_t{1} << 54) - 1;
  const bool half = mantissa & 1;
  mantissa >>= 1;
  bool below = rest != 0 || (limbs_[first] & ((std::int64_t{1} << within) - 1)) != 0;
  for (int i = begin_; i < first; ++i) below |= limbs_[i] != 0;
  if (rounding == Rounding::ToOdd)
    mantissa |= half || below;
  else
    mantissa += half && (below || (mantissa & 1));
  const double magnitude = std::ldexp(static_cast<double>(mantissa), lowest + kLowest);
  return negative ? -magnitude : magnitude;
}

}  // namespace mpi_gdr::host
