// The vocabulary every room shares: data types, reduction operations, collectives.
// Plain values without state; safe to use from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mpigdr {

// Element types that our kernels can reduce. Pure data movement does not look at the type: it is expressed
// as UInt8 with counts in bytes, so that any itemsize can be moved.
enum class DataType : std::uint8_t {
  Float64,
  Float32,
  Float16,   // IEEE binary16
  BFloat16,  // truncated binary32, round to nearest even
  // One byte each; name: exponent and mantissa bits, fn: no infinities, uz: one zero and one NaN (0x80).
  Float8E4M3FN,
  Float8E5M2,  // the only one with infinities
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
inline constexpr int kDataTypeCount = 21;

// The bitwise ones are for integers, and for Bool the logical ones.
enum class ReduceOp : std::uint8_t { Sum, Avg, PreMulSum, Product, Min, Max, BitAnd, BitOr, BitXor };
inline constexpr int kReduceOpCount = 9;

enum class Collective : std::uint8_t {
  AllReduce,
  Broadcast,
  Reduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Barrier,
  Gather,
  Scatter,
};
inline constexpr int kCollectiveCount = 9;

// Those that have a ReduceOp, and those that have a root.
constexpr bool reduces(Collective c) {
  return c == Collective::AllReduce || c == Collective::Reduce || c == Collective::ReduceScatter;
}
constexpr bool has_root(Collective c) {
  return c == Collective::Broadcast || c == Collective::Reduce || c == Collective::Gather ||
         c == Collective::Scatter;
}

constexpr std::size_t item_size(DataType t) {
  constexpr std::uint8_t kBytes[kDataTypeCount] = {8,  4, 2, 2, 1, 1, 1, 1, 1, 4, 8,
                                                   16, 8, 4, 2, 1, 8, 4, 2, 1, 1};
  return kBytes[static_cast<int>(t)];
}

constexpr bool is_complex(DataType t) {
  return t == DataType::Complex32 || t == DataType::Complex64 || t == DataType::Complex128;
}

// What is promised of the bits of reductions that round (docs/numerics.md).
enum class Bits : std::uint8_t {
  Any,
  Order,  // one left fold in rank order
  Exact,  // sums rounded once; other operations as Order
};
inline constexpr int kBitsCount = 3;

// Sums of these are kept in the type itself, not in a wider one.
constexpr bool keeps_sums(DataType t) { return is_complex(t) ? t != DataType::Complex32 : item_size(t) >= 4; }

// Integers and Bool: no reduction rounds, so that none depends on the order. All others round.
constexpr bool is_integral(DataType t) { return t >= DataType::Int64; }

// Names as torch spells them ("float32", "bfloat16", ...) and as torch.distributed spells them
// ("all_reduce", "sum", ...), and MPI_GDR_BITS: they appear in messages, tables and environment variables.
std::string_view name(DataType t);
std::string_view name(ReduceOp op);
std::string_view name(Collective c);
std::string_view name(Bits bits);

// True if `op` is defined on `t`: Avg is not on Bool; PreMulSum needs a type that rounds, its factor is real;
// Min and Max need an order, which complex numbers have not; the bitwise ones need an integer or Bool.
bool supports(ReduceOp op, DataType t);

}  // namespace mpigdr
