#include "torch/errors.hpp"

#include <string>

namespace mpigdr::torch_binding {

void rethrow_for_torch(const Error& error) {
  const std::string text = std::string("mpi-gdr: ") + error.what();
  switch (error.code()) {
    case ErrorCode::InvalidUsage:
      C10_THROW_ERROR(ValueError, text);
    case ErrorCode::NotImplemented:
      C10_THROW_ERROR(NotImplementedError, text);
    default:
      C10_THROW_ERROR(DistBackendError, text);
  }
}

std::exception_ptr translate(std::exception_ptr error) {
  if (!error) return error;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      rethrow_for_torch(e);
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace mpigdr::torch_binding
