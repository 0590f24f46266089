// Names that come from Python. Throw ValueError that names the argument and lists what it may be. With the
// GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "common/reach.hpp"
#include "common/types.hpp"

namespace mpigdr::python {

inline constexpr const char* kReaches[] = {"none", "segments", "all"};

// The enumerator whose name is `text`; name(k) is that of the k-th of `count`.
template <typename Enum, typename Name>
Enum parse(const char* argument, const std::string& text, int count, Name name) {
  std::string known;
  for (int k = 0; k < count; ++k) {
    if (text == name(k)) return static_cast<Enum>(k);
    known += (k ? ", " : "") + std::string(name(k));
  }
  throw pybind11::value_error(std::string(argument) + "='" + text + "', expected one of: " + known);
}

inline Collective parse_collective(const std::string& text) {
  return parse<Collective>("collective", text, kCollectiveCount,
                           [](int k) { return name(static_cast<Collective>(k)); });
}
inline DataType parse_dtype(const std::string& text) {
  return parse<DataType>("dtype", text, kDataTypeCount, [](int k) { return name(static_cast<DataType>(k)); });
}
inline ReduceOp parse_op(const std::string& text) {
  return parse<ReduceOp>("op", text, kReduceOpCount, [](int k) { return name(static_cast<ReduceOp>(k)); });
}
inline Reach parse_reach(const std::string& text) {
  return parse<Reach>("reach", text, 3, [](int k) { return kReaches[k]; });
}

}  // namespace mpigdr::python
