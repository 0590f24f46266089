// How each element type is stored (Stored) and in which type it is folded (Folded); the 8-bit floats are in
// float8.hpp. Branch-free on values, so that the loops around them vectorise. Pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "device/kernels/portable.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

template <typename T>
struct PlainCodec {
  using Stored = T;
  using Folded = T;
  MPI_GDR_PORTABLE static Folded load(Stored v) { return v; }
  MPI_GDR_PORTABLE static Stored store(Folded v) { return v; }
};

// A register, by the compilers' vector extension, for loops that GCC 12 vectorises badly. Not on GPUs.
#if !defined(__CUDACC__) && !defined(__HIPCC__)
#define MPI_GDR_VECTOR_REGISTERS
#endif
#ifdef MPI_GDR_VECTOR_REGISTERS
#if defined(__AVX512F__)
inline constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr std::size_t kVectorBytes = 32;
#else
inline constexpr std::size_t kVectorBytes = 16;
#endif
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));
inline constexpr std::size_t kFloats = kVectorBytes / sizeof(float);
#endif

// Integer arithmetic where no instruction converts; the loop still vectorises. Other processors convert
// registers (host/fold.hpp) to the same bits, and NVIDIA GPUs have one instruction for each.
struct Float16Codec {
  using Stored = std::uint16_t;
  using Folded = float;
  static constexpr bool kShortSpan = true;  // sums of 8192 of them are exact in double
  MPI_GDR_PORTABLE static Folded load(Stored v) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(v));
    return value;
#else
    const std::uint32_t magnitude = v & 0x7fffu;
    // The exponent bias grows by 112; infinities and NaNs need that again to reach the all-ones exponent.
    const std::uint32_t rebias = magnitude >= 0x7c00u ? (224u << 23) : (112u << 23);
    const std::uint32_t normal = (magnitude << 13) + rebias;
    // Converted as an integer, not as a float32 subnormal.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
    const std::uint32_t sign = (v & 0x8000u) << 16;
    return std::bit_cast<float>(sign | (magnitude < 0x0400u ? subnormal : normal));
#endif
  }
  MPI_GDR_PORTABLE static Stored store(Folded v) {
#ifdef __CUDA_ARCH__
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
#else
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    // A NaN keeps what fits of its payload and becomes quiet, as by the instructions.
    const std::uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    const std::uint32_t special = magnitude > 0x7f800000u ? quiet : 0x7c00u;
    // Half an ulp less a bit, plus the lowest kept bit: round to nearest even. Carries run into the exponent.
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // One ulp of 0.5 is the smallest binary16 subnormal: the addition rounds.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                                    std::bit_cast<std::uint32_t>(0.5f);
    const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    return static_cast<Stored>(sign | (magnitude >= 0x47800000u ? special : finite));
#endif
  }
#if defined(__F16C__) && defined(MPI_GDR_VECTOR_REGISTERS)
  static constexpr std::size_t kVectors = 1;
#ifdef __AVX512F__
  // With a mask because GCC 12 warns of the undefined register in the form without.
  static void load(const Stored* from, Floats* to) {
    *to = _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void store(const Floats* from, Stored* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtps_ph(0xffff, *from, _MM_FROUND_TO_NEAREST_INT));
  }
#else
  static void load(const Stored* from, Floats* to) {
    *to = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(const Floats* from, Stored* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(*from, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
#endif
};

// The upper half of a float32.
struct BFloat16Codec {
  using Stored = std::uint16_t;
  using Folded = float;
  MPI_GDR_PORTABLE static Folded load(Stored v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
  }
  MPI_GDR_PORTABLE static Stored store(Folded v) { return static_cast<Stored>(rounded(v) >> 16); }

#ifdef MPI_GDR_VECTOR_REGISTERS
  // A 32-bit word holds two elements, one where a float has it and one a shift away: fewer instructions than
  // widening in order. The order of lanes does not matter meanwhile.
  static constexpr std::size_t kVectors = 2;
  static void load(const Stored* from, Floats* to) {
    Words words;
    std::memcpy(&words, from, kVectorBytes);
    to[0] = std::bit_cast<Floats>(words << 16);
    to[1] = std::bit_cast<Floats>(words & 0xffff0000u);
  }
  static void store(const Floats* from, Stored* to) {
#ifdef __AVX512BF16__
    // The instruction rounds as rounded(), but takes float32 subnormals for zero in any mode.
    const Words magnitudes[] = {std::bit_cast<Words>(from[0]) & 0x7fffffffu,
                                std::bit_cast<Words>(from[1]) & 0x7fffffffu};
    const auto subnormal = [](Words magnitude) {  // 0 becomes the largest number
      return _mm512_cmplt_epu32_mask(std::bit_cast<__m512i>(magnitude - 1u), _mm512_set1_epi32(0x007fffff));
    };
    if ((subnormal(magnitudes[0]) | subnormal(magnitudes[1])) == 0) {
      const __m512i halves = std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(from[1], from[0]));
      _mm512_storeu_si512(to, _mm512_permutexvar_epi16(std::bit_cast<__m512i>(kAlternating), halves));
      return;
    }
#endif
    const Words words = (rounded(from[0]) >> 16) | (rounded(from[1]) & 0xffff0000u);
    std::memcpy(to, &words, kVectorBytes);
  }
#endif

 private:
#ifdef __AVX512BF16__
  // An element of the lower half of a register, then one of the upper.
  typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes)));
  static constexpr Halves kAlternating = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
#endif
  // To nearest even, in the upper half. Rounding may carry a NaN into infinity; the quiet bit keeps it a NaN.
  MPI_GDR_PORTABLE static std::uint32_t rounded(float v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    return v != v ? bits | 0x00400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  }
#ifdef MPI_GDR_VECTOR_REGISTERS
  static Words rounded(Floats v) {
    const Words bits = std::bit_cast<Words>(v), nan = std::bit_cast<Words>(v != v);
    return (nan & (bits | 0x00400000u)) | (~nan & (bits + 0x7fffu + ((bits >> 16) & 1u)));
  }
#endif
};

template <typename T>
struct Complex {
  T re, im;
};

// `Part`: the codec of either part.
template <typename Part>
struct ComplexCodec {
  using Stored = Complex<typename Part::Stored>;
  using Folded = Complex<typename Part::Folded>;
  MPI_GDR_PORTABLE static Folded load(Stored v) { return {Part::load(v.re), Part::load(v.im)}; }
  MPI_GDR_PORTABLE static Stored store(Folded v) { return {Part::store(v.re), Part::store(v.im)}; }
};

struct BoolCodec {
  using Stored = std::uint8_t;
  using Folded = std::uint8_t;
  MPI_GDR_PORTABLE static Folded load(Stored v) { return v != 0; }
  MPI_GDR_PORTABLE static Stored store(Folded v) { return v; }
};

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
