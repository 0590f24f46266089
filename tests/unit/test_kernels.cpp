// Every host kernel (dtype, operation, sources, scaling, aliasing) against an independent scalar reference.
#include <bit>
#include <cmath>
#include <type_traits>

#include "device/device.hpp"
#include "device/host/isa.hpp"
#include "kernel_reference.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using namespace unit;

namespace {

template <typename T>
T guard_value() {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(0x5a);
  else
    return {0x5a, 0x5a};
}

// Fills k sources by `make`, reduces into fresh memory and onto each source, and compares every element by
// `same` with `reference(values)`. Guards around the destination must survive.
template <typename T, typename Make, typename Reference, typename Same>
void check_kernel(DataType dtype, ReduceOp op, Make make, Reference reference, Same same, double factor = 1.0,
                  std::uint32_t divisor = 1) {
  for (const std::size_t count : {0u, 1u, 3u, 17u, 1023u, 1024u, 1025u, 2051u}) {
    for (int k = 1; k <= 5; ++k) {
      std::vector<std::vector<T>> sources(k, std::vector<T>(count));
      for (auto& source : sources)
        for (T& v : source) v = make();
      std::vector<T> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<T> values;
        for (const auto& source : sources) values.push_back(source[i]);
        expected[i] = reference(values);
      }
      for (int alias = -1; alias < k; ++alias)
        for (const host::Isa isa : host::available_isas()) {
          std::vector<std::vector<T>> inputs = sources;
          constexpr std::size_t kGuard = 3;  // also misaligns the destination
          const T guard = guard_value<T>();
          std::vector<T> fresh(count + 2 * kGuard, guard);
          std::vector<const void*> addresses;
          for (const auto& input : inputs) addresses.push_back(input.data());
          T* dst = alias < 0 ? fresh.data() + kGuard : inputs[alias].data();
          host::reduce({dtype, op, dst, addresses.data(), k, count, factor, divisor}, isa);
          for (std::size_t i = 0; i < count; ++i) CHECK(same(dst[i], expected[i]));
          for (std::size_t i = 0; i < kGuard; ++i)
            CHECK(fresh[i] == guard && fresh[fresh.size() - 1 - i] == guard);
        }
    }
  }
}

template <typename F>
bool same_float(F a, F b) {
  return (std::isnan(a) && std::isnan(b)) || a == b;
}

// Numbers of mixed size, including NaNs, infinities, zeros of both signs and ties.
template <typename F>
struct FloatSource {
  std::mt19937 random{7};
  F operator()() {
    switch (random() % 16) {
      case 0:
        return static_cast<F>(NAN);
      case 1:
        return random() % 2 ? static_cast<F>(INFINITY) : static_cast<F>(-INFINITY);
      case 2:
        return random() % 2 ? F(0) : F(-0.0);
      case 3:
        return F(1);
      default:
        return static_cast<F>(std::uniform_real_distribution<double>(-100, 100)(random));
    }
  }
};

// Compares parts as floats, so that NaN equals NaN.
template <typename F>
bool same_pair(Pair<F> a, Pair<F> b) {
  return same_float(a.re, b.re) && same_float(a.im, b.im);
}

template <typename F>
void check_floats(DataType dtype) {
  for_each_operation(dtype, [&](ReduceOp op, double factor, std::uint32_t divisor) {
    check_kernel<F>(
        dtype, op, FloatSource<F>{},
        [&](const std::vector<F>& v) { return fold_float(v, op, factor, divisor); }, same_float<F>, factor,
        divisor);
  });
}

// Half are any bit pattern, half near one so that sums round instead of absorbing.
template <typename T, typename Format>
struct ShortSource {
  const Format& format;
  std::mt19937 random{11};
  T operator()() {
    return static_cast<T>(
        random() % 2 ? random() : format.encode(std::uniform_real_distribution<double>(-4, 4)(random)));
  }
};

template <typename T, typename Format>
void check_short_floats(DataType dtype, const Format& format) {
  for_each_operation(dtype, [&](ReduceOp op, double factor, std::uint32_t divisor) {
    check_kernel<T>(
        dtype, op, ShortSource<T, Format>{format},
        [&](const std::vector<T>& v) {
          std::vector<float> values;
          for (const T h : v) values.push_back(static_cast<float>(format.decode(h)));
          return static_cast<T>(format.encode(fold_float(values, op, factor, divisor)));
        },
        [&](T a, T b) { return same_float(format.decode(a), format.decode(b)); }, factor, divisor);
  });
}

template <typename F>
void check_complex(DataType dtype) {
  FloatSource<F> part;
  for_each_operation(dtype, [&](ReduceOp op, double factor, std::uint32_t divisor) {
    check_kernel<Pair<F>>(
        dtype, op,
        [&] {
          const F re = part();
          return Pair<F>{re, part()};
        },
        [&](const std::vector<Pair<F>>& v) { return fold_complex(v, op, factor, divisor); }, same_pair<F>,
        factor, divisor);
  });
}

template <typename T>
void check_integers(DataType dtype) {
  std::mt19937_64 random(13);
  const auto make = [&] {
    switch (random() % 8) {
      case 0:
        return std::numeric_limits<T>::max();
      case 1:
        return std::numeric_limits<T>::min();
      default:
        return static_cast<T>(random());
    }
  };
  for_each_operation(dtype, [&](ReduceOp op, double factor, std::uint32_t divisor) {
    check_kernel<T>(
        dtype, op, make, [&](const std::vector<T>& v) { return fold_integer(v, op, divisor); },
        [](T a, T b) { return a == b; }, factor, divisor);
  });
}

template <typename Format>
void check_all_pairs(DataType dtype, const Format& format) {
  std::vector<std::uint8_t> a(65536), b(65536), result(65536);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint8_t>(i >> 8);
    b[i] = static_cast<std::uint8_t>(i);
  }
  const void* sources[] = {a.data(), b.data()};
  for_each_operation(dtype, [&](ReduceOp op, double factor, std::uint32_t divisor) {
    host::reduce({dtype, op, result.data(), sources, 2, result.size(), factor, divisor});
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::vector<float> values{static_cast<float>(format.decode(a[i])),
                                      static_cast<float>(format.decode(b[i]))};
      const std::uint32_t expected = format.encode(fold_float(values, op, factor, divisor));
      const bool both_nan = std::isnan(format.decode(result[i])) && std::isnan(format.decode(expected));
      // Min and Max of zeros of both signs may be either.
      const bool zeros = (op == ReduceOp::Min || op == ReduceOp::Max) && format.decode(result[i]) == 0 &&
                         format.decode(expected) == 0;
      CHECK(result[i] == expected || both_nan || zeros);
    }
  });
}

}  // namespace

TEST(reduce_float64) { check_floats<double>(DataType::Float64); }
TEST(reduce_float32) { check_floats<float>(DataType::Float32); }
TEST(reduce_float16) { check_short_floats<std::uint16_t>(DataType::Float16, kHalf); }
TEST(reduce_bfloat16) { check_short_floats<std::uint16_t>(DataType::BFloat16, kBFloat); }
TEST(reduce_float8_e4m3fn) { check_short_floats<std::uint8_t>(DataType::Float8E4M3FN, kE4M3FN); }
TEST(reduce_float8_e5m2) { check_short_floats<std::uint8_t>(DataType::Float8E5M2, kE5M2); }
TEST(reduce_float8_e4m3fnuz) { check_short_floats<std::uint8_t>(DataType::Float8E4M3FNUZ, kE4M3FNUZ); }
TEST(reduce_float8_e5m2fnuz) { check_short_floats<std::uint8_t>(DataType::Float8E5M2FNUZ, kE5M2FNUZ); }
TEST(reduce_float8_e8m0fnu) { check_short_floats<std::uint8_t>(DataType::Float8E8M0FNU, kE8M0FNU); }
TEST(reduce_all_pairs_of_float8) {
  check_all_pairs(DataType::Float8E4M3FN, kE4M3FN);
  check_all_pairs(DataType::Float8E5M2, kE5M2);
  check_all_pairs(DataType::Float8E4M3FNUZ, kE4M3FNUZ);
  check_all_pairs(DataType::Float8E5M2FNUZ, kE5M2FNUZ);
  check_all_pairs(DataType::Float8E8M0FNU, kE8M0FNU);
}
TEST(reduce_complex128) { check_complex<double>(DataType::Complex128); }
TEST(reduce_complex64) { check_complex<float>(DataType::Complex64); }
TEST(reduce_int64) { check_integers<std::int64_t>(DataType::Int64); }
TEST(reduce_int32) { check_integers<std::int32_t>(DataType::Int32); }
TEST(reduce_int16) { check_integers<std::int16_t>(DataType::Int16); }
TEST(reduce_int8) { check_integers<std::int8_t>(DataType::Int8); }
TEST(reduce_uint64) { check_integers<std::uint64_t>(DataType::UInt64); }
TEST(reduce_uint32) { check_integers<std::uint32_t>(DataType::UInt32); }
TEST(reduce_uint16) { check_integers<std::uint16_t>(DataType::UInt16); }
TEST(reduce_uint8) { check_integers<std::uint8_t>(DataType::UInt8); }

TEST(reduce_complex32) {
  ShortSource<std::uint16_t, ShortFloat> part{kHalf};
  for_each_operation(DataType::Complex32, [&](ReduceOp op, double factor, std::uint32_t divisor) {
    using Stored = Pair<std::uint16_t>;
    check_kernel<Stored>(
        DataType::Complex32, op,
        [&] {
          const std::uint16_t re = part();
          return Stored{re, part()};
        },
        [&](const std::vector<Stored>& v) {
          std::vector<Pair<float>> values;
          for (const Stored s : v)
            values.push_back(
                {static_cast<float>(kHalf.decode(s.re)), static_cast<float>(kHalf.decode(s.im))});
          const Pair<float> result = fold_complex(values, op, factor, divisor);
          return Stored{static_cast<std::uint16_t>(kHalf.encode(result.re)),
                        static_cast<std::uint16_t>(kHalf.encode(result.im))};
        },
        [](Stored a, Stored b) {
          return same_float(kHalf.decode(a.re), kHalf.decode(b.re)) &&
                 same_float(kHalf.decode(a.im), kHalf.decode(b.im));
        },
        factor, divisor);
  });
}

TEST(reduce_bool) {
  std::mt19937 random(17);
  const auto make = [&] { return static_cast<std::uint8_t>(random() % 3 ? 0 : random() % 256); };
  const auto same = [](std::uint8_t a, std::uint8_t b) { return a == b; };
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Product, ReduceOp::Min, ReduceOp::BitOr,
                            ReduceOp::BitAnd, ReduceOp::BitXor}) {
    check_kernel<std::uint8_t>(
        DataType::Bool, op, make,
        [&](const std::vector<std::uint8_t>& v) {
          const auto ones = std::count_if(v.begin(), v.end(), [](std::uint8_t b) { return b != 0; });
          if (op == ReduceOp::BitXor) return static_cast<std::uint8_t>(ones % 2);
          const bool any = op == ReduceOp::Sum || op == ReduceOp::Max || op == ReduceOp::BitOr;
          return static_cast<std::uint8_t>(any ? ones > 0 : ones == static_cast<long>(v.size()));
        },
        same);
  }
}

TEST(every_short_float_survives_a_copy) {
  std::vector<std::uint16_t> all(65536), copied(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const void* source = all.data();
  host::reduce({DataType::Float16, ReduceOp::Sum, copied.data(), &source, 1, all.size()});
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(std::isnan(kHalf.decode(all[i])) ? std::isnan(kHalf.decode(copied[i])) : copied[i] == all[i]);
  host::reduce({DataType::BFloat16, ReduceOp::Sum, copied.data(), &source, 1, all.size()});
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(std::isnan(kBFloat.decode(all[i])) ? std::isnan(kBFloat.decode(copied[i])) : copied[i] == all[i]);
}

TEST(short_floats_round_once_and_ties_go_to_even) {
  // In bfloat16 1 + 2 * 2^-9 is a tie, which gives 1 as rounding after each addition would; 1 + 3 * 2^-9 is
  // above the tie.
  const auto one = static_cast<std::uint16_t>(kBFloat.encode(1));
  const auto tiny = static_cast<std::uint16_t>(kBFloat.encode(std::ldexp(1, -9)));
  const void* four[] = {&one, &tiny, &tiny, &tiny};
  std::uint16_t result = 0;
  host::reduce({DataType::BFloat16, ReduceOp::Sum, &result, four, 3, 1});
  CHECK(kBFloat.decode(result) == 1.0);
  host::reduce({DataType::BFloat16, ReduceOp::Sum, &result, four, 4, 1});
  CHECK(kBFloat.decode(result) == 1.0 + std::ldexp(1, -7));
  // 65504 + 16 is half way to the next power and rounds to infinity; 65504 + 15.99 does not.
  const std::uint16_t largest = 0x7bff;
  const auto sixteen = static_cast<std::uint16_t>(kHalf.encode(16));
  const auto less = static_cast<std::uint16_t>(kHalf.encode(15.99));
  const void* over[] = {&largest, &sixteen};
  host::reduce({DataType::Float16, ReduceOp::Sum, &result, over, 2, 1});
  CHECK(result == 0x7c00);
  const void* under[] = {&largest, &less};
  host::reduce({DataType::Float16, ReduceOp::Sum, &result, under, 2, 1});
  CHECK(result == 0x7bff);
}

TEST(reduce_refuses_what_is_undefined) {
  float f = 1;
  std::uint8_t b = 1;
  const void* source = &f;
  const void* bools = &b;
  CHECK_THROWS(host::reduce({DataType::Float32, ReduceOp::Sum, &f, &source, 0, 1}), Error, "source_count=0");
  CHECK_THROWS(host::reduce({DataType::Bool, ReduceOp::Avg, &b, &bools, 1, 1}), Error, "op=avg");
  CHECK_THROWS(host::reduce({DataType::Bool, ReduceOp::Sum, &b, &bools, 1, 1, 1.0, 2}), Error, "divisor=2");
  CHECK_THROWS(host::reduce({DataType::UInt8, ReduceOp::PreMulSum, &b, &bools, 1, 1}), Error,
               "op=premul_sum");
  CHECK_THROWS(host::reduce({DataType::UInt8, ReduceOp::Sum, &b, &bools, 1, 1, 2.0}), Error, "factor=2");
  CHECK_THROWS(host::reduce({DataType::Float32, ReduceOp::Sum, &f, &source, 1, 1, 1.0, 0}), Error,
               "divisor=0");
  CHECK_THROWS(host::reduce({DataType::Float32, ReduceOp::Max, &f, &source, 1, 1, 1.0, 2}), Error,
               "only sums are scaled");
  int refused = 0;
  for (int d = 0; d < kDataTypeCount; ++d)
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DataType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (supports(op, dtype)) continue;
      ++refused;
      const std::string text =
          "op=" + std::string(name(op)) + " is not defined on dtype=" + std::string(name(dtype));
      CHECK_THROWS(host::reduce({dtype, op, &f, &source, 1, 0}), Error, text.c_str());
    }
  // avg of bool; premul_sum of 9 integral types; min and max of 3 complex; 3 bitwise of 12 others.
  CHECK(refused == 1 + 9 + 2 * 3 + 3 * 12);
}

UNIT_MAIN()
