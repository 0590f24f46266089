// A rank's memory as ranges of equal expressions, which bound the costs. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "checker/expression.hpp"
#include "checker/layout.hpp"

namespace mpi_gdr {

// `count` elements, of which the k-th is `expression` on element index + k of each rank's input.
struct Value {
  std::uint64_t count = 0;
  ExpressionId expression = 0;
  std::uint64_t index = 0;
};
using Values = std::vector<Value>;

class SymbolicMemory {
 public:
  // Throws CheckFailure if part of the extent was never written.
  Values read(const Extent& extent) const;
  void write(const Extent& extent, const Values& values);

 private:
  std::array<std::map<std::uint64_t, Value>, kBufferCount>
      regions_;  // by first element; gaps are uninitialised
};

// Elementwise fold of equally long sources. Throws CheckFailure.
Values reduce(const std::vector<Values>& sources, Scale scale, ExpressionTable& table);
Values scaled(Values values, Scale scale, ExpressionTable& table);

}  // namespace mpi_gdr
