#include "torch/signals.hpp"

#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace mpigdr::torch_binding {

std::exception_ptr pending_interrupt() {
  if (::syscall(SYS_gettid) != ::getpid() || !Py_IsInitialized()) return nullptr;
  const pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? nullptr : std::make_exception_ptr(pybind11::error_already_set());
}

void check_interrupt() {
  if (const std::exception_ptr raised = pending_interrupt()) std::rethrow_exception(raised);
}

}  // namespace mpigdr::torch_binding
