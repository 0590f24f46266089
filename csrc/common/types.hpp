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
  Int64,
  Int32,
  Int16,
  Int8,
  UInt8,
  Bool,  // one byte, 0 or 1; Sum and Max are OR, Product and Min are AND
};
inline constexpr int kDataTypeCount = 10;

enum class ReduceOp : std::uint8_t { Sum, Avg, PreMulSum, Product, Min, Max };
inline constexpr int kReduceOpCount = 6;

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

constexpr std::size_t item_size(DataType t) {
  switch (t) {
    case DataType::Float64:
    case DataType::Int64:
      return 8;
    case DataType::Float32:
    case DataType::Int32:
      return 4;
    case DataType::Float16:
    case DataType::BFloat16:
    case DataType::Int16:
      return 2;
    case DataType::Int8:
    case DataType::UInt8:
    case DataType::Bool:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DataType t) {
  return t == DataType::Float64 || t == DataType::Float32 || t == DataType::Float16 ||
         t == DataType::BFloat16;
}

// Names as torch spells them ("float32", "bfloat16", ...) and as torch.distributed spells them
// ("all_reduce", "sum", ...): they appear in messages, tables and environment variables.
std::string_view name(DataType t);
std::string_view name(ReduceOp op);
std::string_view name(Collective c);

// True if `op` is defined on `t`: Avg is undefined on Bool, PreMulSum needs a floating type.
bool supports(ReduceOp op, DataType t);

}  // namespace mpigdr
