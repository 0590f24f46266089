// Host kernels against scalar references of another make, and the semantics of the simulated device.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "common/error.hpp"
#include "device/device.hpp"
#include "device/sim/sim_device.hpp"
#include "test.hpp"

using namespace mpigdr;

namespace {

// ---- references for 16-bit floats: decode by definition, encode by search for the nearest value ----

double decode_half(std::uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

double decode_bfloat(std::uint16_t b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16); }

// `infinity` is the pattern of +inf; patterns below it are the finite magnitudes in order.
template <typename Decode>
std::uint16_t encode_nearest(double v, std::uint16_t infinity, double overflow, Decode decode) {
  if (std::isnan(v)) return infinity | 1;
  const std::uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const double m = std::fabs(v);
  if (m >= overflow) return sign | infinity;
  std::uint16_t low = 0, high = infinity - 1;
  while (low < high) {  // the largest pattern not above m
    const std::uint16_t middle = static_cast<std::uint16_t>((low + high + 1) / 2);
    if (decode(middle) <= m)
      low = middle;
    else
      high = static_cast<std::uint16_t>(middle - 1);
  }
  if (low + 1 == infinity) return sign | low;
  const double below = m - decode(low), above = decode(static_cast<std::uint16_t>(low + 1)) - m;
  const bool up = above < below || (above == below && (low & 1));
  return static_cast<std::uint16_t>(sign | (low + up));
}

std::uint16_t encode_half(double v) { return encode_nearest(v, 0x7c00, 65520.0, decode_half); }
std::uint16_t encode_bfloat(double v) {
  const double overflow = std::ldexp(2.0 - std::ldexp(1.0, -8), 127);
  return encode_nearest(v, 0x7f80, overflow, decode_bfloat);
}

// ---- a scalar fold for each type, in the order and precision that device.hpp promises ----

template <typename F>
F fold_float(const std::vector<F>& values, ReduceOp op, double factor, std::uint32_t divisor) {
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

template <typename T>
T fold_integer(const std::vector<T>& values, ReduceOp op, std::uint32_t divisor) {
  // 128 bits hold every intermediate of two operands exactly; the cast reduces modulo 2^n.
  __extension__ using Wide = __int128;
  T result = values[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    const Wide a = result, b = values[k];
    if (op == ReduceOp::Product)
      result = static_cast<T>(a * b);
    else if (op == ReduceOp::Min)
      result = static_cast<T>(a < b ? a : b);
    else if (op == ReduceOp::Max)
      result = static_cast<T>(a > b ? a : b);
    else
      result = static_cast<T>(a + b);
  }
  return static_cast<T>(static_cast<Wide>(result) / divisor);
}

const ReduceOp kAllOps[] = {ReduceOp::Sum,     ReduceOp::Avg, ReduceOp::PreMulSum,
                            ReduceOp::Product, ReduceOp::Min, ReduceOp::Max};

// Fills k sources by `make`, reduces into fresh memory and onto each source, and checks every element with
// `same` against `reference(values)`. Guards around the destination must survive.
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
      for (int alias = -1; alias < k; ++alias) {
        std::vector<std::vector<T>> inputs = sources;
        constexpr std::size_t kGuard = 3;  // also misaligns the destination
        const T guard = static_cast<T>(0x5a);
        std::vector<T> fresh(count + 2 * kGuard, guard);
        std::vector<const void*> addresses;
        for (const auto& input : inputs) addresses.push_back(input.data());
        T* dst = alias < 0 ? fresh.data() + kGuard : inputs[alias].data();
        host::reduce({dtype, op, dst, addresses.data(), k, count, factor, divisor});
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

// Numbers of mixed size, with NaNs, infinities, zeros of both signs and ties among them.
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

template <typename F>
void check_floats(DataType dtype) {
  for (const ReduceOp op : kAllOps) {
    const double factor = op == ReduceOp::PreMulSum ? 0.3 : 1.0;
    const std::uint32_t divisor = op == ReduceOp::Avg ? 3 : 1;
    check_kernel<F>(
        dtype, op, FloatSource<F>{},
        [&](const std::vector<F>& v) { return fold_float(v, op, factor, divisor); }, same_float<F>, factor,
        divisor);
  }
}

template <typename Decode, typename Encode>
void check_short_floats(DataType dtype, Decode decode, Encode encode) {
  std::mt19937 random(11);
  // Any bit pattern, but half of them near one so that sums round instead of absorbing.
  const auto make = [&] {
    return random() % 2 ? static_cast<std::uint16_t>(random())
                        : encode(std::uniform_real_distribution<double>(-4, 4)(random));
  };
  for (const ReduceOp op : kAllOps) {
    const double factor = op == ReduceOp::PreMulSum ? 0.3 : 1.0;
    const std::uint32_t divisor = op == ReduceOp::Avg ? 3 : 1;
    check_kernel<std::uint16_t>(
        dtype, op, make,
        [&](const std::vector<std::uint16_t>& v) {
          std::vector<float> values;
          for (const std::uint16_t h : v) values.push_back(static_cast<float>(decode(h)));
          return encode(fold_float(values, op, factor, divisor));
        },
        [&](std::uint16_t a, std::uint16_t b) { return same_float(decode(a), decode(b)); }, factor, divisor);
  }
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
  const auto same = [](T a, T b) { return a == b; };
  for (const ReduceOp op : kAllOps) {
    if (op == ReduceOp::PreMulSum) continue;
    for (const std::uint32_t divisor : {1u, 3u, 1000u}) {
      if (divisor != 1 && op != ReduceOp::Avg) continue;
      check_kernel<T>(
          dtype, op, make, [&](const std::vector<T>& v) { return fold_integer(v, op, divisor); }, same, 1.0,
          divisor);
    }
  }
}

}  // namespace

TEST(reduce_float64) { check_floats<double>(DataType::Float64); }
TEST(reduce_float32) { check_floats<float>(DataType::Float32); }
TEST(reduce_float16) { check_short_floats(DataType::Float16, decode_half, encode_half); }
TEST(reduce_bfloat16) { check_short_floats(DataType::BFloat16, decode_bfloat, encode_bfloat); }
TEST(reduce_int64) { check_integers<std::int64_t>(DataType::Int64); }
TEST(reduce_int32) { check_integers<std::int32_t>(DataType::Int32); }
TEST(reduce_int16) { check_integers<std::int16_t>(DataType::Int16); }
TEST(reduce_int8) { check_integers<std::int8_t>(DataType::Int8); }
TEST(reduce_uint8) { check_integers<std::uint8_t>(DataType::UInt8); }

TEST(reduce_bool) {
  std::mt19937 random(17);
  const auto make = [&] { return static_cast<std::uint8_t>(random() % 3 ? 0 : random() % 256); };
  const auto same = [](std::uint8_t a, std::uint8_t b) { return a == b; };
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Product, ReduceOp::Min}) {
    const bool any = op == ReduceOp::Sum || op == ReduceOp::Max;
    check_kernel<std::uint8_t>(
        DataType::Bool, op, make,
        [&](const std::vector<std::uint8_t>& v) {
          const auto is_true = [](std::uint8_t b) { return b != 0; };
          return static_cast<std::uint8_t>(any ? std::any_of(v.begin(), v.end(), is_true)
                                               : std::all_of(v.begin(), v.end(), is_true));
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
    CHECK(std::isnan(decode_half(all[i])) ? std::isnan(decode_half(copied[i])) : copied[i] == all[i]);
  host::reduce({DataType::BFloat16, ReduceOp::Sum, copied.data(), &source, 1, all.size()});
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(std::isnan(decode_bfloat(all[i])) ? std::isnan(decode_bfloat(copied[i])) : copied[i] == all[i]);
}

TEST(short_floats_round_once_and_ties_go_to_even) {
  // 1 + 2^-9 + 2^-9 in bfloat16: rounding after each addition gives 1, one rounding gives 1 + 2^-8 -> tie ->
  // 1; with a third 2^-9 the exact sum is above the tie.
  const std::uint16_t one = encode_bfloat(1), tiny = encode_bfloat(std::ldexp(1, -9));
  const void* four[] = {&one, &tiny, &tiny, &tiny};
  std::uint16_t result = 0;
  host::reduce({DataType::BFloat16, ReduceOp::Sum, &result, four, 3, 1});
  CHECK(decode_bfloat(result) == 1.0);
  host::reduce({DataType::BFloat16, ReduceOp::Sum, &result, four, 4, 1});
  CHECK(decode_bfloat(result) == 1.0 + std::ldexp(1, -7));
  // 65504 + 16 is half way to what would be 65536: it rounds to infinity, 65504 + 15.99 does not.
  const std::uint16_t largest = 0x7bff, sixteen = encode_half(16), less = encode_half(15.99);
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
}

// ---- the simulated device ----

TEST(sim_queue_runs_in_order) {
  SimDevice device({.hardware_queues = 1, .max_delay = std::chrono::microseconds(100)});
  const auto queue = device.make_queue();
  int a = 1, b = 0, c = 0;
  queue->copy(&b, &a, sizeof a);
  const void* sources[] = {&a, &b};
  queue->reduce({DataType::Int32, ReduceOp::Sum, &c, sources, 2, 1});
  sources[0] = sources[1] = nullptr;  // the array was copied
  queue->copy(&a, &c, sizeof a);
  queue->synchronize();
  CHECK(a == 2 && b == 1 && c == 2);
}

TEST(sim_flags_join_host_and_device) {
  SimDevice device;
  const auto queue = device.make_queue();
  const auto flags = device.make_flags(2);
  int source = 0, dst = 0;
  queue->wait_flag(&flags[0], 5);
  queue->copy(&dst, &source, sizeof dst);
  queue->write_flag(&flags[1], 9);
  source = 42;  // before the release below, so the copy must see it
  flags[0].store(4, std::memory_order_release);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(flags[1].load(std::memory_order_acquire) == 0);
  flags[0].store(5, std::memory_order_release);
  while (flags[1].load(std::memory_order_acquire) != 9) std::this_thread::yield();
  CHECK(dst == 42);
}

TEST(sim_order_joins_queues) {
  for (const int hardware_queues : {1, 2}) {
    SimDevice device({.hardware_queues = hardware_queues});
    const auto before = device.make_queue(), after = device.make_queue();
    const auto flags = device.make_flags(1);
    int source = 7, middle = 0, dst = 0;
    before->wait_flag(&flags[0], 1);
    before->copy(&middle, &source, sizeof source);
    device.order(*before, *after);
    after->copy(&dst, &middle, sizeof dst);
    flags[0].store(1, std::memory_order_release);
    after->synchronize();
    CHECK(dst == 7);
  }
}

TEST(sim_queues_block_each_other_only_if_they_share_hardware) {
  for (const int hardware_queues : {1, 2}) {
    SimDevice device({.hardware_queues = hardware_queues});
    const auto first = device.make_queue(), second = device.make_queue();
    const auto flags = device.make_flags(2);
    first->wait_flag(&flags[0], 1);
    second->write_flag(&flags[1], 1);
    if (hardware_queues == 2) second->synchronize();
    CHECK(flags[1].load(std::memory_order_acquire) == (hardware_queues == 2 ? 1u : 0u));
    flags[0].store(1, std::memory_order_release);
    first->synchronize();  // its wait reads a flag that ends with this scope
    second->synchronize();
    CHECK(flags[1].load(std::memory_order_acquire) == 1);
  }
}

TEST(sim_allocation_waits_for_the_device) {
  SimDevice device({.hardware_queues = 2});
  const auto queue = device.make_queue();
  const auto flags = device.make_flags(1);
  queue->wait_flag(&flags[0], 1);
  std::atomic<bool> allocated{false};
  std::thread other([&] {
    void* memory = device.allocate(100);
    allocated.store(true, std::memory_order_release);
    device.release(memory);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const bool too_early = allocated.load(std::memory_order_acquire);
  flags[0].store(1, std::memory_order_release);
  other.join();
  CHECK(!too_early && allocated.load(std::memory_order_acquire));
  int stranger = 0;
  CHECK_THROWS(device.release(&stranger), Error, "not from allocate()");
}

TEST(sim_names_the_flag_of_a_hang) {
  SimDevice device({.deadline = std::chrono::milliseconds(30)});
  const auto queue = device.make_queue();
  const auto flags = device.make_flags(4);
  flags[2].store(1, std::memory_order_release);
  int a = 1, b = 0;
  queue->wait_flag(&flags[2], 3);
  queue->copy(&b, &a, sizeof a);
  CHECK_THROWS(queue->synchronize(), Error, "flag 2 of a block of 4 to reach 3, it is 1");
  CHECK_THROWS(device.check(), Error, "flag 2");
  CHECK(b == 0);
}

TEST(sim_reports_a_kernel_that_throws) {
  SimDevice device;
  const auto queue = device.make_queue();
  std::uint8_t v = 0;
  const void* source = &v;
  queue->reduce({DataType::Bool, ReduceOp::Avg, &v, &source, 1, 1});
  CHECK_THROWS(queue->synchronize(), Error, "op=avg is not defined on dtype=bool");
}

UNIT_MAIN()
