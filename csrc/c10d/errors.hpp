#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "common/error.hpp"

namespace mpi_gdr::torch_binding {

// InvalidUsage: ValueError; NotImplemented: NotImplementedError; else torch.distributed.DistBackendError.
[[noreturn]] inline void rethrow_for_torch(const Error& error) {
  const std::string text = std::string("mpi-gdr: ") + error.what();
  if (error.code() == ErrorCode::InvalidUsage) C10_THROW_ERROR(ValueError, text);
  if (error.code() == ErrorCode::NotImplemented) C10_THROW_ERROR(NotImplementedError, text);
  C10_THROW_ERROR(DistBackendError, text);
}

// For Futures. Other exceptions and null pass unchanged.
inline std::exception_ptr translate(std::exception_ptr error) {
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

template <typename F>
decltype(auto) with_torch_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error& error) {
    rethrow_for_torch(error);
  } catch (const std::bad_alloc&) {
    rethrow_for_torch(NoMemory("no memory on this rank (std::bad_alloc)"));
  }
}

// For pybind11. Pass a lambda without captures as +[].
template <typename R, typename... A>
auto translating(R (*f)(A...)) {
  return [f](A... arguments) -> R {
    return with_torch_errors([&]() -> R { return f(std::forward<A>(arguments)...); });
  };
}

}  // namespace mpi_gdr::torch_binding
