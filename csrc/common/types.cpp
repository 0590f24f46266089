#include "common/types.hpp"

namespace mpigdr {

std::string_view name(DataType t) {
  static constexpr std::string_view names[kDataTypeCount] = {
      "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"};
  return names[static_cast<int>(t)];
}

std::string_view name(ReduceOp op) {
  static constexpr std::string_view names[kReduceOpCount] = {"sum",     "avg", "premul_sum",
                                                             "product", "min", "max"};
  return names[static_cast<int>(op)];
}

std::string_view name(Collective c) {
  static constexpr std::string_view names[kCollectiveCount] = {"all_reduce", "broadcast",      "reduce",
                                                               "all_gather", "reduce_scatter", "all_to_all",
                                                               "barrier",    "gather",         "scatter"};
  return names[static_cast<int>(c)];
}

bool supports(ReduceOp op, DataType t) {
  if (op == ReduceOp::PreMulSum) return is_floating(t);
  if (op == ReduceOp::Avg) return t != DataType::Bool;
  return true;
}

}  // namespace mpigdr
