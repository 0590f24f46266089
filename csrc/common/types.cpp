#include "common/types.hpp"

namespace mpigdr {

std::string_view name(DataType t) {
  static constexpr std::string_view names[kDataTypeCount] = {
      "float64",     "float32",         "float16",         "bfloat16",       "float8_e4m3fn",
      "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32",
      "complex64",   "complex128",      "int64",           "int32",          "int16",
      "int8",        "uint64",          "uint32",          "uint16",         "uint8",
      "bool"};
  return names[static_cast<int>(t)];
}

std::string_view name(ReduceOp op) {
  static constexpr std::string_view names[kReduceOpCount] = {"sum", "avg",  "premul_sum", "product", "min",
                                                             "max", "band", "bor",        "bxor"};
  return names[static_cast<int>(op)];
}

std::string_view name(Collective c) {
  static constexpr std::string_view names[kCollectiveCount] = {"all_reduce", "broadcast",      "reduce",
                                                               "all_gather", "reduce_scatter", "all_to_all",
                                                               "barrier",    "gather",         "scatter"};
  return names[static_cast<int>(c)];
}

std::string_view name(Bits bits) {
  static constexpr std::string_view names[kBitsCount] = {"any", "order", "exact"};
  return names[static_cast<int>(bits)];
}

bool supports(ReduceOp op, DataType t) {
  if (op == ReduceOp::Avg) return t != DataType::Bool;
  if (op == ReduceOp::PreMulSum) return !is_integral(t);
  if (op == ReduceOp::Min || op == ReduceOp::Max) return !is_complex(t);
  return op == ReduceOp::Sum || op == ReduceOp::Product || is_integral(t);
}

}  // namespace mpigdr
