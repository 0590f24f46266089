// The module mpi_backend._tools. Uses only torch's pybind11, so that one build serves every torch.
#include <pybind11/pybind11.h>

#include <exception>
#include <string>

#include "common/error.hpp"

namespace py = pybind11;

namespace mpi_gdr::python {

void bind_schedules(py::module_& module);  // schedules.cpp
void bind_raw_mpi(py::module_& module);    // raw_mpi.cpp

}  // namespace mpi_gdr::python

PYBIND11_MODULE(_tools, m) {
  using namespace mpi_gdr;
  m.doc() = "For commands and tests of mpi_backend, not for jobs.";
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      const bool invalid = e.code() == ErrorCode::InvalidUsage;
      const std::string text = invalid ? e.what() : std::string("mpi-gdr: ") + e.what();
      PyErr_SetString(invalid ? PyExc_ValueError : PyExc_RuntimeError, text.c_str());
    }
  });
  python::bind_schedules(m);
  python::bind_raw_mpi(m);
}
