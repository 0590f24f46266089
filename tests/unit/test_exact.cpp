// Sums of ReduceArgs::exact, of every instruction set, against integers of 128 bits that are rounded once.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/error.hpp"
#include "device/device.hpp"
#include "device/host/isa.hpp"
#include "device/host/superaccumulator.hpp"
#include "kernel_reference.hpp"
#include "test.hpp"

using namespace mpigdr;
using namespace unit;

namespace {

__extension__ using Wide = __int128;

// sum * 2^unit / divisor, to nearest with ties to even, of so many bits where the lowest stands for 2^lowest
// at least.
double nearest(Wide sum, int unit, std::uint32_t divisor, int bits, int lowest) {
  if (sum == 0) return 0;
  const bool negative = sum < 0;
  Wide magnitude = negative ? -sum : sum;
  while (magnitude >> 120 == 0) magnitude <<= 1, --unit;
  Wide quotient = magnitude / divisor;
  bool below = magnitude % divisor != 0, half = false;
  while (quotient >> bits != 0 || unit < lowest) {
    below |= half;
    half = quotient & 1;
    quotient >>= 1, ++unit;
  }
  quotient += half && (below || (quotient & 1));
  const double result = std::ldexp(static_cast<double>(quotient), unit);
  return negative ? -result : result;
}

struct Format {
  DataType dtype;
  int bits, lowest;
  double largest;
};

template <typename T, typename Decode>
void check_sums(const Format& format, T (*make)(std::mt19937&, int), const Decode& decode, int unit) {
  std::mt19937 random(5);
  constexpr std::size_t kCount = 1031;
  for (const int k : {2, 3, 4, 7})
    for (int kind = 0; kind < 3; ++kind)
      for (const std::uint32_t divisor : {1u, 2u, 3u, 7u}) {
        std::vector<std::vector<T>> sources(k, std::vector<T>(kCount));
        for (std::size_t i = 0; i < kCount; ++i)
          for (int r = 0; r < k; ++r) sources[r][i] = make(random, kind);
        std::vector<const void*> addresses;
        for (const auto& source : sources) addresses.push_back(source.data());
        for (const host::Isa isa : host::available_isas()) {
          std::vector<T> result(kCount);
          ReduceArgs args{format.dtype, ReduceOp::Sum, result.data(), addresses.data(), k,
                          kCount,       1.0,           divisor};
          args.exact = true;
          host::reduce(args, isa);
          for (std::size_t i = 0; i < kCount; ++i) {
            Wide sum = 0;
            for (const auto& source : sources) {
              const double v = std::ldexp(decode(source[i]), -unit);
              sum += static_cast<Wide>(v);
            }
            double expected = nearest(sum, unit, divisor, format.bits, format.lowest);
            if (std::fabs(expected) > format.largest) expected = std::copysign(INFINITY, expected);
            CHECK(decode(result[i]) == expected);
          }
        }
      }
}

// Numbers of 2^-50 to 2^50 or so, whose sums have up to 110 bits.
template <typename F>
F number(std::mt19937& random, int kind) {
  const int spread = kind == 0 ? 1 : kind == 1 ? 10 : 14;
  const int digits = kind == 2 ? 3 : std::numeric_limits<F>::digits;
  const double mantissa =
      std::floor(std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random), digits));
  const int exponent = static_cast<int>(random() % (2 * spread + 1)) - spread;
  return static_cast<F>(std::ldexp(mantissa, exponent * 2 - digits));
}
std::uint16_t half(std::mt19937& random, int kind) {
  return static_cast<std::uint16_t>(kHalf.encode(number<float>(random, kind) / 16384));
}
std::uint16_t bfloat(std::mt19937& random, int kind) {
  return static_cast<std::uint16_t>(kBFloat.encode(number<float>(random, kind)));
}
std::uint8_t e5m2(std::mt19937& random, int kind) {
  return static_cast<std::uint8_t>(kE5M2.encode(number<float>(random, kind) / 16384));
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
  for (const host::Isa isa : host::available_isas()) {
    const auto sum = [&](std::vector<F> values, std::uint32_t divisor = 1) {
      return sum_of<F>(dtype, values, isa, divisor);
    };
    CHECK(sum({F(1e30), 1, F(-1e30)}) == 1);
    CHECK(sum({F(1e30), F(1e-30), F(-1e30), 1, -1}) == F(1e-30));
    CHECK(sum({most, most, -most}) == most && sum({most, most, -most, -most}) == 0);
    CHECK(sum({most, most}) == inf && sum({-most, -most, -most}) == -inf);
    CHECK(sum({most, most}, 2) == most);
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
  check_sums<double>(
      {DataType::Float64, 53, -1074, std::numeric_limits<double>::max()}, number<double>,
      [](double v) { return v; }, -81);
}
TEST(exact_float32) {
  check_sums<float>(
      {DataType::Float32, 24, -149, std::numeric_limits<float>::max()}, number<float>,
      [](float v) { return static_cast<double>(v); }, -52);
}
TEST(exact_float16) {
  check_sums<std::uint16_t>(
      {DataType::Float16, 11, -24, 65504}, half, [](std::uint16_t v) { return kHalf.decode(v); }, -24);
}
TEST(exact_bfloat16) {
  check_sums<std::uint16_t>(
      {DataType::BFloat16, 8, -133, 0x1.fep127}, bfloat, [](std::uint16_t v) { return kBFloat.decode(v); },
      -60);
}
TEST(exact_float8) {
  check_sums<std::uint8_t>(
      {DataType::Float8E5M2, 3, -16, 57344}, e5m2, [](std::uint8_t v) { return kE5M2.decode(v); }, -16);
}
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
