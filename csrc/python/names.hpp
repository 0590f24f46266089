// Names from Python. Invalid ones raise a ValueError that lists the valid ones. Requires the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "common/reach.hpp"
#include "common/types.hpp"

namespace mpi_gdr::python {

template <typename Enum>
Enum parse(const char* argument, const std::string& text) {
  if (const auto found = named<Enum>(text)) return *found;
  std::string known;
  for (const Enum e : every<Enum>()) known += (known.empty() ? "" : ", ") + std::string(name(e));
  throw pybind11::value_error(std::string(argument) + "='" + text + "', expected one of: " + known);
}

inline Collective parse_collective(const std::string& text) { return parse<Collective>("collective", text); }
inline DataType parse_dtype(const std::string& text) { return parse<DataType>("dtype", text); }
inline ReduceOp parse_op(const std::string& text) { return parse<ReduceOp>("op", text); }
inline Reach parse_reach(const std::string& text) { return parse<Reach>("reach", text); }

}  // namespace mpi_gdr::python
