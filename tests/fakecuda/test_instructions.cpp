// PTX instructions at the ends of their ranges, by the PTX manual.
#include <cmath>

#include "gpu/instructions.hpp"
#include "test.hpp"

using namespace fakecuda::ptx;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr u32 kNan = 0x7fffffff;

u32 f(float v) { return std::bit_cast<u32>(v); }
u64 d(double v) { return std::bit_cast<u64>(v); }

}  // namespace

TEST(integers_wrap) {
  CHECK(add<s32>(0x7fffffff, 1) == 0x80000000);
  CHECK(add<s16>(0xffff, 2) == 1);
  CHECK(sub<u64>(0, 1) == ~u64{0});
  CHECK(mul<s16>(0xffff, 0xffff) == 1);
  CHECK(mul<u32>(0x10001, 0x10001) == 0x20001);
  CHECK(mul_wide<s32>(static_cast<u32>(-3), 5) == static_cast<u64>(-15));
  CHECK(mul_wide<u32>(static_cast<u32>(-3), 5) == u64{0xfffffffd} * 5);
}

TEST(divisions_of_integers) {
  CHECK(div<s32>(static_cast<u32>(-7), 2) == static_cast<u32>(-3));
  CHECK(rem<s32>(static_cast<u32>(-7), 2) == static_cast<u32>(-1));
  CHECK(div<u32>(static_cast<u32>(-7), 2) == 0x7ffffffc);
  CHECK(div<s64>(u64{1} << 63, ~u64{0}) == u64{1} << 63);
  CHECK(rem<s64>(u64{1} << 63, ~u64{0}) == 0);
  CHECK(div<u32>(5, 0) == 0xffffffff && rem<u32>(5, 0) == 5);
}

TEST(shifts_by_the_width_and_more) {
  CHECK(shl<u32>(1, 31) == 0x80000000 && shl<u32>(1, 32) == 0 && shl<u64>(1, 63) == u64{1} << 63);
  CHECK(shr<u32>(0x80000000, 31) == 1 && shr<u32>(0x80000000, 32) == 0);
  CHECK(shr<s32>(0x80000000, 40) == 0xffffffff && shr<s16>(0xff00, 8) == 0xffff &&
        shr<s16>(0x7f00, 8) == 0x7f);
}

TEST(fields_and_bytes) {
  CHECK(bfe<u32>(0x12345678, 8, 8) == 0x56 && bfe<s32>(0x1234f678, 8, 8) == 0xfffffff6);
  CHECK(bfe<u32>(0x80000000, 24, 32) == 0x80 && bfe<s32>(0x80000000, 24, 32) == 0xffffff80);
  CHECK(bfe<s64>(u64{1} << 63, 70, 3) == ~u64{0} && bfe<u64>(~u64{0}, 70, 3) == 0 &&
        bfe<s32>(~0u, 3, 0) == 0);
  CHECK(bfi<u64>(0xff, 0, 32, 4) == u64{0xf} << 32);
  CHECK(bfi<u32>(0x5, 0xffffffff, 4, 8) == 0xfffff05f);
  CHECK(bfi<u64>(7, 9, 0, 64) == 7 && bfi<u32>(7, 9, 3, 0) == 9);
  CHECK(prmt(0x33221100, 0x77665544, 0x3210) == 0x33221100);
  CHECK(prmt(0x33221100, 0x77665544, 0x7351) == 0x77335511);
  CHECK(prmt(0x00008000, 0, 0x0999) == 0x00ffffff);  // the sign of byte 1
  CHECK((join<u64>(u32{1}, u32{2}) == (u64{2} << 32 | 1) && join<u32>(u16{3}, u16{4}) == 0x00040003));
}

TEST(floats_are_not_fused_and_keep_subnormals) {
  CHECK(add<f32>(f(1), f(0x1p-24f)) == f(1) && add<f32>(f(1), f(0x1.8p-24f)) == f(1 + 0x1p-23f));
  CHECK(mul<f32>(f(0x1p-100f), f(0x1p-40f)) == f(0x1p-140f));
  CHECK(add<f32>(mul<f32>(f(1 + 0x1p-12f), f(1 + 0x1p-12f)), f(-1 - 0x1p-11f)) == 0);
  CHECK(div<f64>(d(1), d(3)) == d(1.0 / 3));
}

TEST(nans) {
  CHECK(sub<f32>(f(kInf), f(kInf)) == kNan && add<f32>(0xffc12345, f(1)) == kNan);
  CHECK((cvt<f16, f32>(0xffc12345) == 0x7fff && cvt<f32, f16>(0xfe01) == kNan));
  CHECK(!eq<f32>(kNan, kNan) && !ne<f32>(kNan, f(1)) && !lt<f32>(kNan, f(1)) && !ge<f32>(f(1), kNan));
  CHECK(nan<f32>(f(1), kNan) && nan<f32>(kNan, f(1)) && !nan<f32>(f(1), f(2)));
  CHECK(ne<f32>(f(1), f(2)) && ne<s32>(1, 2) && !ne<s32>(2, 2) && eq<f32>(f(0), f(-0.0f)));
}

TEST(comparisons_are_signed) {
  CHECK(lt<s32>(static_cast<u32>(-1), 0) && !lt<u32>(static_cast<u32>(-1), 0));
  CHECK(min<s16>(0xffff, 1) == 0xffff && min<u16>(0xffff, 1) == 1 && max<s64>(~u64{0}, 1) == 1);
  CHECK(gt<f32>(f(1), f(-1)) && le<f64>(d(1), d(1)));
}

TEST(conversions) {
  CHECK((cvt<s16, s8>(0x1280) == -128 && cvt<u16, u32>(0x12345678) == 0x5678));
  CHECK((cvt<s64, s32>(0x80000000) == -(s64{1} << 31) && cvt<u64, u32>(~u64{0}) == 0xffffffff));
  CHECK((cvt<f32, u32>(0xffffffff) == f(0x1p32f) && cvt<f64, s16>(0xffff) == d(-1)));
  CHECK((cvt<s32, f64>(d(-2.9)) == -2 && cvt<s32, f64>(d(2.9)) == 2));
  CHECK((cvt<s32, f64>(d(1e10)) == 0x7fffffff && cvt<s32, f64>(d(-1e10)) == -0x7fffffff - 1));
  CHECK((cvt<s32, f64>(d(NAN)) == 0 && cvt<s32, f64>(d(2147483647.0)) == 2147483647));
  CHECK((cvt<s32, f32>(f(0x1p31f)) == 2147483647 && cvt<u32, f32>(f(-1)) == 0));
  CHECK((cvt<f16, f32>(f(65520)) == 0x7c00 && cvt<f16, f32>(f(65519)) == 0x7bff));
  CHECK((cvt<f16, f32>(f(0x1p-25f)) == 0 && cvt<f16, f32>(f(0x1.8p-25f)) == 1));
  CHECK((cvt<f32, f16>(0x0001) == f(0x1p-24f) && cvt<f32, f64>(d(1 + 0x1p-24)) == f(1)));
}

UNIT_MAIN()
