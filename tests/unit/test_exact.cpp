// Sums with ReduceArgs::exact, for every instruction set, against integers wide enough for any sum.
#include <bit>
#include <cmath>

#include "device/device.hpp"
#include "device/host/isa.hpp"
#include "device/host/superaccumulator.hpp"
#include "kernel_reference.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using namespace unit;

namespace {

__extension__ using Wide = unsigned __int128;

// All numbers are multiples of 2^lowest with at most `bits` significant bits.
struct Format {
  DataType dtype;
  int bits, lowest;
  double largest;
  int highest() const { return std::ilogb(largest) - bits + 1; }  // exponent of the lowest bit
};

// Defines the exact sum: a two's complement integer in units of 2^kUnit.
class Reference {
 public:
  void add(double v) {
    only_minus_zeros_ &= v == 0 && std::signbit(v);
    if (!std::isfinite(v)) special_ += v;
    if (!std::isfinite(v) || v == 0) return;
    int exponent;
    const double fraction = std::frexp(std::fabs(v), &exponent);
    const int at = exponent - 53 - kUnit;
    Wide part = static_cast<Wide>(std::ldexp(fraction, 53)) << at % 64;
    if (v < 0) part = -part;
    Wide carry = 0;
    for (int i = at / 64; i < kWords; ++i) {
      carry += words_[i];
      carry += static_cast<std::uint64_t>(part);
      words_[i] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
      part = part >> 64 | (v < 0 ? ~Wide{0} << 64 : Wide{0});
    }
  }

  double quotient(std::uint32_t divisor, const Format& format) {
    if (special_ != 0) return special_;
    const bool negative = words_[kWords - 1] >> 63;
    Wide carry = negative;
    for (std::uint64_t& word : words_) {
      carry += negative ? ~word : word;
      word = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    Wide rest = 0;
    bool is_zero = true;
    for (int i = kWords - 1; i >= 0; --i) {
      rest = rest << 64 | words_[i];
      is_zero &= rest == 0;
      words_[i] = static_cast<std::uint64_t>(rest / divisor);
      rest %= divisor;
    }
    if (is_zero) return only_minus_zeros_ ? -0.0 : 0.0;
    int top = 64 * kWords - 1;
    while (top > 0 && !bit(top)) --top;
    const int last = std::max(top - format.bits + 1, format.lowest - kUnit);
    double mantissa = 0;
    for (int i = top; i >= last; --i) mantissa = 2 * mantissa + bit(i);
    bool below = rest != 0;
    for (int i = 0; i < last - 1; ++i) below |= bit(i);
    if (bit(last - 1) && (below || bit(last))) ++mantissa;
    double result = std::ldexp(mantissa, last + kUnit);
    if (result > format.largest) result = INFINITY;
    return negative ? -result : result;
  }

 private:
  static constexpr int kUnit = -1216, kWords = 36;
  bool bit(int i) const { return words_[i / 64] >> i % 64 & 1; }
  std::uint64_t words_[kWords] = {};
  double special_ = 0;
  bool only_minus_zeros_ = true;
};

// Contributions to one element; each kind takes another path through the kernels.
class Contributions {
 public:
  enum Kind {
    kOrdinary,
    kShort,
    kAnywhere,
    kCancelling,
    kTies,
    kQuotientTies,
    kLadder,
    kSubnormal,
    kOverflowing,
    kSpecial,
    kMinusZeros,
    kKinds
  };
  explicit Contributions(const Format& format) : format_(format) {}

  std::vector<double> make(int kind, int count, std::uint32_t divisor) {
    values_.assign(count, 0);
    const int middle = (format_.lowest + format_.highest()) / 2;
    if (kind == kQuotientTies) {
      tie_quotient(divisor);
    } else if (kind == kTies) {
      const int exponent = between(format_.lowest + 1, format_.highest());
      const double all[] = {number(exponent), power(exponent - 1), any_power_below(exponent),
                            any_power_below(exponent)};
      for (int k = 0; k < std::min(count, 4); ++k) values_[k] = all[k];
    } else if (kind == kLadder) {  // each about half a unit in the last place of the one before
      const int step = between(0, 1) ? between(52, 54) : between(format_.bits - 1, format_.bits + 1);
      int exponent = between(middle, format_.highest());
      values_[0] = number(exponent);
      if (between(0, 1)) exponent += format_.bits;
      for (int k = 1; k < count; ++k) values_[k] = power(exponent -= k == 1 ? 1 + format_.bits : step);
    } else {
      for (int k = 0; k < count; ++k) values_[k] = one(kind, middle, k);
    }
    std::shuffle(values_.begin(), values_.end(), random_);
    return values_;
  }

 private:
  double one(int kind, int middle, int k) {
    if (kind == kOrdinary) return number(middle + between(-4, 4));
    if (kind == kShort) return std::ldexp(between(-9, 9), middle + between(-3, 3));
    if (kind == kAnywhere) return between(0, 9) ? number(between(format_.lowest, format_.highest())) : 0;
    if (kind == kCancelling && k % 2) return between(0, 5) ? -values_[k - 1] : any_power_below(middle);
    if (kind == kCancelling) return number(between(format_.lowest, format_.highest()));
    if (kind == kSubnormal) return std::ldexp(between(-20, 20), format_.lowest);
    if (kind == kOverflowing && between(0, 2)) return between(0, 1) ? format_.largest : -format_.largest;
    if (kind == kOverflowing) return number(format_.highest() - between(0, 60));
    if (kind == kMinusZeros) return between(0, 30) ? -0.0 : 0.0;
    const double all[] = {INFINITY, -INFINITY, NAN, 0, -0.0, 1, format_.largest};
    return all[between(0, 30) ? between(3, 6) : between(0, 2)];
  }

  // Values whose quotient by the divisor is halfway between two numbers, or close to that.
  void tie_quotient(std::uint32_t divisor) {
    Wide left = (static_cast<Wide>(std::ldexp(1, format_.bits)) + between(0, 99)) * 2 + between(0, 1);
    left *= divisor;
    const int unit = between(format_.lowest, std::max(format_.lowest, format_.highest() - 32));
    int end = 128;
    while (left >> (end - 1) == 0) --end;
    std::size_t k = 0;
    for (; left != 0 && k < values_.size(); end -= format_.bits) {  // each piece has as many bits as a number
      const int at = std::max(end - format_.bits, 0);
      const Wide piece = left >> at << at;
      values_[k++] = std::ldexp(static_cast<double>(piece), unit);
      left -= piece;
    }
    if (k < values_.size() && between(0, 2)) values_[k] = any_power_below(unit);
  }

  int between(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  double number(int exponent) {  // with all bits used
    exponent = std::max(exponent, format_.lowest);
    const double real = std::uniform_real_distribution<double>(1, 2)(random_);
    const double mantissa = std::floor(std::ldexp(real, format_.bits - 1));
    return std::ldexp(between(0, 1) ? mantissa : -mantissa, exponent);
  }
  double power(int exponent) {
    return exponent < format_.lowest ? 0 : std::ldexp(between(0, 1) ? 1 : -1, exponent);
  }
  double any_power_below(int exponent) {
    return power(between(0, 2) ? between(format_.lowest - 2, exponent - 2) : format_.lowest);
  }

  const Format format_;
  std::mt19937 random_{5};
  std::vector<double> values_;
};

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

template <typename T, typename Encode, typename Decode>
void check_sums(const Format& format, const Encode& encode, const Decode& decode) {
  constexpr std::size_t kCount = 69;
  Contributions contributions(format);
  for (const int k : {2, 3, 4, 5, 7, 8, 9, 16, 33, 64, 500})
    for (int kind = 0; kind <= Contributions::kKinds; ++kind)  // the last mixes all kinds
      for (const std::uint32_t divisor : {1, 2, 3, k, 8191}) {
        std::vector<std::vector<T>> sources(k, std::vector<T>(kCount));
        std::vector<double> expected;
        for (std::size_t i = 0; i < kCount; ++i) {
          const int own = kind < Contributions::kKinds ? kind : static_cast<int>(i % Contributions::kKinds);
          const std::vector<double> values = contributions.make(own, k, divisor);
          Reference reference;
          for (int r = 0; r < k; ++r) reference.add(decode(sources[r][i] = encode(values[r])));
          expected.push_back(reference.quotient(divisor, format));
        }
        std::vector<const void*> addresses;
        for (const auto& source : sources) addresses.push_back(source.data());
        for (const host::Isa isa : host::available_isas()) {
          std::vector<T> result(sources[0]);
          addresses[0] = result.data();  // in place
          ReduceArgs args{format.dtype, ReduceOp::Sum, result.data(), addresses.data(), k,
                          kCount,       1.0,           divisor};
          args.exact = true;
          host::reduce(args, isa);
          for (std::size_t i = 0; i < kCount; ++i) {
            if (!same(decode(result[i]), expected[i]))
              std::printf("%s, %d values of kind %d over %u, element %zu: %a, not %a\n",
                          std::string(name(isa)).c_str(), k, kind, divisor, i, decode(result[i]),
                          expected[i]);
            CHECK(same(decode(result[i]), expected[i]));
          }
        }
      }
}

template <typename F>
void check_floats(const Format& format) {
  check_sums<F>(
      format, [](double v) { return static_cast<F>(v); }, [](F v) { return static_cast<double>(v); });
}
template <typename T>
void check_short_floats(const Format& format, const ShortFloat& codec) {
  check_sums<T>(
      format, [&](double v) { return static_cast<T>(codec.encode(v)); },
      [&](T v) { return codec.decode(v); });
}

template <typename T>
T sum_of(DataType dtype, const std::vector<T>& values, host::Isa isa, std::uint32_t divisor = 1) {
  std::vector<const void*> sources;
  for (const T& v : values) sources.push_back(&v);
  T result;
  ReduceArgs args{dtype, ReduceOp::Sum, &result, sources.data(), static_cast<int>(sources.size()),
                  1,     1.0,           divisor};
  args.exact = true;
  host::reduce(args, isa);
  return result;
}

template <typename F>
void check_corners(DataType dtype) {
  constexpr F inf = std::numeric_limits<F>::infinity(), most = std::numeric_limits<F>::max(),
              least = std::numeric_limits<F>::denorm_min(), tiny = std::numeric_limits<F>::min();
  const F ulp = std::numeric_limits<F>::epsilon();
  const F half_unit = std::ldexp(ulp, std::numeric_limits<F>::max_exponent - 2);  // of `most`
  for (const host::Isa isa : host::available_isas()) {
    const auto sum = [&](std::vector<F> values, std::uint32_t divisor = 1) {
      return sum_of<F>(dtype, values, isa, divisor);
    };
    CHECK(sum({F(1e30), 1, F(-1e30)}) == 1);
    CHECK(sum({F(1e30), F(1e-30), F(-1e30), 1, -1}) == F(1e-30));
    CHECK(sum({most, most, -most}) == most && sum({most, most, -most, -most}) == 0);
    CHECK(sum({most, most}) == inf && sum({-most, -most, -most}) == -inf);
    CHECK(sum({most, most}, 2) == most);
    CHECK(sum({most, half_unit}) == inf && sum({most, half_unit}, 2) == half_unit / ulp * 2);
    CHECK(sum({most, half_unit / 2, half_unit / 2}, 2) == half_unit / ulp * 2);  // by rounding alone
    CHECK(sum({most, most * ulp / 4}) == most && sum({most, least}) == most);
    CHECK(sum({inf, 1, most}) == inf && sum({-inf, most, most}) == -inf);
    CHECK(std::isnan(sum({inf, 1, -inf})) && std::isnan(sum({F(NAN), 1})) &&
          std::isnan(sum({1, inf, F(NAN)})));
    CHECK(!std::signbit(sum({F(-0.0), F(0.0)})) && std::signbit(sum({F(-0.0), F(-0.0), F(-0.0)})));
    CHECK(!std::signbit(sum({1, F(-0.0), -1})) && std::signbit(sum({F(-0.0), F(-0.0)}, 3)));
    CHECK(sum({1, ulp / 2}) == 1 && sum({1, ulp / 2, least}) == 1 + ulp);
    CHECK(sum({1 + ulp, ulp / 2}) == 1 + 2 * ulp && sum({1 + ulp, ulp / 2, -least}) == 1 + ulp);
    CHECK(sum({least, least, -least}) == least && sum({tiny, -least}) == tiny - least);
    CHECK(sum({least, 0}, 2) == 0 && sum({least, least, least}, 2) == 2 * least);
    CHECK(sum({most, least, -most, most, -most}) == least);
  }
}

}  // namespace

TEST(exact_float64) {
  check_floats<double>({DataType::Float64, 53, -1074, std::numeric_limits<double>::max()});
}
TEST(exact_float32) { check_floats<float>({DataType::Float32, 24, -149, std::numeric_limits<float>::max()}); }
TEST(exact_float16) { check_short_floats<std::uint16_t>({DataType::Float16, 11, -24, 65504}, kHalf); }
TEST(exact_bfloat16) {
  check_short_floats<std::uint16_t>({DataType::BFloat16, 8, -133, 0x1.fep127}, kBFloat);
}
TEST(exact_float8) { check_short_floats<std::uint8_t>({DataType::Float8E5M2, 3, -16, 57344}, kE5M2); }
TEST(exact_corners) {
  check_corners<double>(DataType::Float64);
  check_corners<float>(DataType::Float32);
}

TEST(any_order_of_any_numbers) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::vector<double> values;
    host::Superaccumulator all;
    while (values.size() < 5) {
      const double v = std::bit_cast<double>(random());
      if (!std::isfinite(v)) continue;
      values.push_back(round % 2 ? v : std::ldexp(v, -std::ilogb(v) + static_cast<int>(random() % 200)));
      all.add(values.back());
    }
    const double expected = all.quotient(1, host::Rounding::Nearest);
    for (const host::Isa isa : host::available_isas()) {
      CHECK(sum_of<double>(DataType::Float64, values, isa) == expected);
      std::swap(values[0], values[3]);
    }
    std::rotate(values.begin(), values.begin() + 2, values.end());
    CHECK(sum_of<double>(DataType::Float64, values, host::Isa::Baseline) == expected);
  }
}

TEST(too_many_contributions_are_refused) {
  std::vector<float> values(kMostExactSources + 1);
  CHECK_THROWS(sum_of<float>(DataType::Float32, values, host::Isa::Baseline), Error, "8192 contributions");
}

UNIT_MAIN()
