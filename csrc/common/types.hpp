// Data types, reduction operations and collectives. Plain values, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/names.hpp"

namespace mpi_gdr {

// Element types that our kernels reduce. Data movement uses UInt8 with counts in bytes, for any itemsize.
enum class DataType : std::uint8_t {
  Float64,
  Float32,
  Float16,   // IEEE binary16
  BFloat16,  // upper half of binary32; rounds to nearest even
  // One byte. E, M: exponent and mantissa bits; FN: no infinities; UZ: one zero and one NaN (0x80).
  Float8E4M3FN,
  Float8E5M2,  // has infinities
  Float8E4M3FNUZ,
  Float8E5M2FNUZ,
  Float8E8M0FNU,  // a power of two: no sign, no zero
  Complex32,      // pairs (real, imaginary) of Float16, Float32 or Float64
  Complex64,
  Complex128,
  Int64,
  Int32,
  Int16,
  Int8,
  UInt64,
  UInt32,
  UInt16,
  UInt8,
  Bool,  // one byte, 0 or 1; Sum and Max are OR, Product and Min are AND
};
// As torch spells them; used in messages, tables and environment variables.
template <>
inline constexpr auto kNames<DataType> =
    names("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "float8_e8m0fnu", "complex32", "complex64", "complex128", "int64", "int32",
          "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool");
inline constexpr int kDataTypeCount = kNameCount<DataType>;

// Bitwise operations are for integers, and logical for Bool.
enum class ReduceOp : std::uint8_t { Sum, Avg, PreMulSum, Product, Min, Max, BitAnd, BitOr, BitXor };
// As torch.distributed spells them, like the collectives below.
template <>
inline constexpr auto kNames<ReduceOp> =
    names("sum", "avg", "premul_sum", "product", "min", "max", "band", "bor", "bxor");
inline constexpr int kReduceOpCount = kNameCount<ReduceOp>;

enum class Collective : std::uint8_t {
#define COLLECTIVE(enumerator, ...) enumerator,
#include "common/collectives.inc"
};
template <>
inline constexpr auto kNames<Collective> = std::to_array<std::string_view>({
#define COLLECTIVE(enumerator, name, ...) #name,
#include "common/collectives.inc"
});
inline constexpr int kCollectiveCount = kNameCount<Collective>;

// Contents of a rank's buffer, in terms of CollectiveSpec::count (schedule/spec.hpp).
enum class Contents : std::uint8_t {
  None,
  Whole,   // `count` elements
  Block,   // its own block
  Blocks,  // those of all ranks
  Splits,  // a part for each rank; only the sender and the receiver have its length
};
enum class Root : std::uint8_t { None, Sends, Receives };

struct CollectiveTraits {
  std::string_view variable;  // "ALLREDUCE" in MPI_GDR_ALLREDUCE_ALGO
  Contents input, output;
  Root root;
  bool reduces;  // has a ReduceOp
};
inline constexpr CollectiveTraits kCollectives[] = {
#define COLLECTIVE(enumerator, name, variable, input, output, root, reduces) \
  {#variable, Contents::input, Contents::output, Root::root, reduces},
#include "common/collectives.inc"
};

constexpr const CollectiveTraits& traits(Collective c) { return kCollectives[static_cast<int>(c)]; }
constexpr bool reduces(Collective c) { return traits(c).reduces; }
constexpr bool has_root(Collective c) { return traits(c).root != Root::None; }
constexpr bool has_count(Collective c) {
  return traits(c).output != Contents::None && traits(c).output != Contents::Splits;
}

constexpr std::size_t item_size(DataType t) {
  constexpr std::uint8_t kBytes[kDataTypeCount] = {8,  4, 2, 2, 1, 1, 1, 1, 1, 4, 8,
                                                   16, 8, 4, 2, 1, 8, 4, 2, 1, 1};
  return kBytes[static_cast<int>(t)];
}

constexpr bool is_complex(DataType t) {
  return t == DataType::Complex32 || t == DataType::Complex64 || t == DataType::Complex128;
}

// Guarantee for the bits of reductions that round (docs/numerics.md).
enum class Bits : std::uint8_t {
  Any,
  Order,  // one left fold in rank order
  Exact,  // sums are rounded once; other operations as Order
};
template <>
inline constexpr auto kNames<Bits> = names("any", "order", "exact");

// Sums are kept in the type itself, not in a wider one.
constexpr bool keeps_sums(DataType t) { return is_complex(t) ? t != DataType::Complex32 : item_size(t) >= 4; }

// Integers and Bool, whose reductions do not depend on the order.
constexpr bool is_integral(DataType t) { return t >= DataType::Int64; }

// PreMulSum needs a type that rounds (its factor is real), Min and Max an order, bitwise an integer or Bool.
constexpr bool supports(ReduceOp op, DataType t) {
  if (op == ReduceOp::Avg) return t != DataType::Bool;
  if (op == ReduceOp::PreMulSum) return !is_integral(t);
  if (op == ReduceOp::Min || op == ReduceOp::Max) return !is_complex(t);
  return op == ReduceOp::Sum || op == ReduceOp::Product || is_integral(t);
}

}  // namespace mpi_gdr
