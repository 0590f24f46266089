// Operations on two values of a folding type (or vectors of float), and the scaling of sums. Pure functions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/kernels/portable.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

// Unsigned and wide enough that overflow and integer promotion are defined: results wrap.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Add {
  template <typename T>
  MPI_GDR_PORTABLE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    else
      return a + b;
  }
};

struct Multiply {
  template <typename T>
  MPI_GDR_PORTABLE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    else
      return a * b;
  }
};

// Keeps a NaN on the left: comparisons with NaN are false. Takes a NaN on the right: it differs from itself.
struct Minimum {
  template <typename T>
  MPI_GDR_PORTABLE static T apply(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};

struct Maximum {
  template <typename T>
  MPI_GDR_PORTABLE static T apply(T a, T b) {
    return ((a < b) | (b != b)) ? b : a;
  }
};

// (a + bi)(c + di) as in torch: no special treatment of infinities (C99's Annex G).
struct ComplexMultiply {
  template <typename C>
  MPI_GDR_PORTABLE static C apply(C a, C b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

// On bits; on bools, which are 0 or 1, logical operations.
struct Or {
  template <typename T>
  MPI_GDR_PORTABLE static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct And {
  template <typename T>
  MPI_GDR_PORTABLE static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct Xor {
  template <typename T>
  MPI_GDR_PORTABLE static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Multiplies before and divides after the fold, in the folding type. Args: factor and divisor of ReduceArgs.
template <typename T>
struct Scaling {
  template <typename Args>
  MPI_GDR_PORTABLE explicit Scaling(const Args& args)
      : factor(static_cast<T>(args.factor)), divisor(static_cast<T>(args.divisor)) {}
  template <typename V>
  MPI_GDR_PORTABLE V before(V v) const {
    return v * factor;
  }
  template <typename V>
  MPI_GDR_PORTABLE V after(V v) const {
    return v / divisor;
  }
  T factor, divisor;
};

template <typename T>
  requires std::is_integral_v<T>
struct Scaling<T> {
  // Up to 32 bits, a truncated floating-point quotient is exact and has vector instructions.
  using Quotient = std::conditional_t<sizeof(T) == 8, T, std::conditional_t<sizeof(T) == 4, double, float>>;
  template <typename Args>
  MPI_GDR_PORTABLE explicit Scaling(const Args& args) : divisor(static_cast<Quotient>(args.divisor)) {}
  MPI_GDR_PORTABLE T before(T v) const { return v; }
  MPI_GDR_PORTABLE T after(T v) const {
    // Through int32: vector units convert doubles to nothing narrower. Unsigned quotients fit: divisor >= 2.
    if constexpr (sizeof(T) == 8)
      return v / divisor;
    else
      return static_cast<T>(static_cast<std::int32_t>(static_cast<Quotient>(v) / divisor));
  }
  Quotient divisor;
};

struct NoScaling {
  template <typename Args>
  MPI_GDR_PORTABLE explicit NoScaling(const Args&) {}
};

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
