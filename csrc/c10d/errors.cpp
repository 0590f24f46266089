#include "c10d/errors.hpp"

#include <string>

namespace mpi_gdr::torch_binding {

void rethrow_for_torch(const Error& error) {
  const std::string text = std::string("mpi-gdr: ") + error.what();
  if (error.code() == ErrorCode::InvalidUsage) C10_THROW_ERROR(ValueError, text);
  if (error.code() == ErrorCode::NotImplemented) C10_THROW_ERROR(NotImplementedError, text);
  C10_THROW_ERROR(DistBackendError, text);
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

}  // namespace mpi_gdr::torch_binding
