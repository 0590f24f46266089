// Sums doubles without rounding; exact_fold.hpp uses it where its terms do not suffice. Used by one thread.
#pragma once

#include <cstdint>

namespace mpi_gdr::host {

enum class Rounding : std::uint8_t {
  Nearest,  // ties to even
  ToOdd,    // truncates, and sets the lowest bit if inexact: rounding again to fewer bits stays correct
};

class Superaccumulator {
 public:
  void add(double value);  // at most 2^30 times
  // The sum divided by `divisor` (1 to 2^31), rounded once. NaN if a value was NaN or infinities of both
  // signs were added; else an infinity that was added. A sum of zero is +0 unless all values were -0.
  double quotient(std::uint32_t divisor, Rounding rounding);

 private:
  static constexpr int kLowest = -1152;  // exponent of the lowest bit: 78 below the smallest subnormal number
  static constexpr int kLimbs = (1024 - kLowest) / 32 + 3;
  std::int64_t limbs_[kLimbs] = {};  // digits of 32 bits, their carries above
  int begin_ = kLimbs, end_ = 0;     // the limbs that may not be 0
  double special_ = 0;               // the sum of infinities and NaNs
  bool has_special_ = false, only_minus_zeros_ = true;
};

}  // namespace mpi_gdr::host
