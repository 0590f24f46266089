// Kernels compute in the default floating-point mode whatever the caller's is, and restore the caller's.
#include <cfenv>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "device/device.hpp"
#include "device/host/isa.hpp"
#include "kernel_reference.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using namespace unit;

namespace {

// `flush`: subnormals are zero, as after torch.set_flush_denormal(True).
void use_mode(int rounding, bool flush) {
  std::fesetround(rounding);
#if defined(__x86_64__)
  _mm_setcsr((_mm_getcsr() & ~0x8040u) | (flush ? 0x8040u : 0u));
#elif defined(__aarch64__)
  std::uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  fpcr = flush ? fpcr | (1u << 24) : fpcr & ~(std::uint64_t{1} << 24);
  asm volatile("msr fpcr, %0" ::"r"(fpcr));
#endif
}

// Subnormal and inexact.
float product_in_this_mode() {
  volatile float a = 0x1.8p-100f, b = 0x1.555556p-30f;
  return a * b;
}

}  // namespace

TEST(the_callers_floating_point_mode_is_without_effect_and_restored) {
  std::mt19937_64 random(17);
  constexpr std::size_t kCount = 1027;
  int compared = 0;
  for (int d = 0; d < kDataTypeCount; ++d) {
    const auto dtype = static_cast<DataType>(d);
    if (is_integral(dtype)) continue;
    const std::size_t bytes = kCount * item_size(dtype);
    // A third of the words has a small exponent, whatever their type.
    std::vector<std::vector<std::uint64_t>> sources(3, std::vector<std::uint64_t>(bytes / 8 + 1));
    for (auto& source : sources)
      for (auto& word : source) word = random() & (random() % 3 ? ~std::uint64_t{0} : 0x800f007f800f007fu);
    const void* const addresses[] = {sources[0].data(), sources[1].data(), sources[2].data()};
    for_each_operation(dtype, [&](ReduceOp op, double factor, std::uint32_t divisor) {
      for (const host::Isa isa : host::available_isas()) {
        const auto reduced = [&](int rounding, bool flush) {
          std::vector<std::byte> result(bytes);
          use_mode(rounding, flush);
          const float before = product_in_this_mode();
          host::reduce({dtype, op, result.data(), addresses, 3, kCount, factor, divisor}, isa);
          const float after = product_in_this_mode();
          use_mode(FE_TONEAREST, false);
          CHECK(std::memcmp(&before, &after, sizeof before) == 0);
          return result;
        };
        const auto expected = reduced(FE_TONEAREST, false);
        CHECK(reduced(FE_TONEAREST, true) == expected);
        CHECK(reduced(FE_UPWARD, false) == expected);
        CHECK(reduced(FE_TOWARDZERO, true) == expected);
        ++compared;
      }
    });
  }
  CHECK(compared >= 12 * 5);
  use_mode(FE_UPWARD, false);
  const float upward = product_in_this_mode();
  use_mode(FE_TONEAREST, true);
  const float flushed = product_in_this_mode();
  use_mode(FE_TONEAREST, false);
  CHECK(upward > product_in_this_mode() && flushed == 0);  // the modes do differ
}

UNIT_MAIN()
