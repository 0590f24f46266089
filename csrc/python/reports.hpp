// A dict with the keys of a TypedDict in mpi_backend/reports.py; signatures and _C.pyi show that name.
#pragma once
#include <pybind11/typing.h>

#include <algorithm>
#include <cstddef>

#include "collectives/selection_table.hpp"

namespace mpi_gdr::python {

template <std::size_t N>
struct TypeName {
  char text[N];
  constexpr TypeName(const char (&name)[N]) { std::copy_n(name, N, text); }
};

template <TypeName kName>
struct __attribute__((visibility("hidden"))) Report : pybind11::dict {  // like pybind11's classes
  using dict::dict;
};

template <TypeName kName>
using Reports = pybind11::typing::List<Report<kName>>;

// A `to_bytes` of 2**64-1 means unbounded.
inline Report<"SelectionRange"> report(const SelectionRange& range) {
  using namespace pybind11::literals;
  Report<"SelectionRange"> row("collective"_a = std::string(name(range.collective)),
                               "from_bytes"_a = range.from_bytes, "to_bytes"_a = range.to_bytes,
                               "algorithm"_a = range.algorithm);
  if (range.leaders) row["leaders"] = range.leaders;
  row["origin"] = range.origin;
  return row;
}

}  // namespace mpi_gdr::python

template <mpi_gdr::python::TypeName kName>
struct pybind11::detail::handle_type_name<mpi_gdr::python::Report<kName>> {
  static constexpr auto name = const_name("mpi_backend.reports.") + const_name(kName.text);
};
