// The exceptions of the C++ side. c10d/errors.hpp maps their codes to Python exceptions.
#pragma once

#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>

namespace mpi_gdr {

enum class ErrorCode {
  InvalidUsage,    // invalid arguments; nothing was sent
  NotImplemented,  // valid, but not supported by this version
  Timeout,         // a deadline passed
  Aborted,         // the group was aborted or has failed before
  Remote,          // another rank failed or disagrees
  Mismatch,        // ranks of a group called different collectives: exchanged data is invalid
  System,          // the operating system or the MPI library reported an error
  Internal,        // a bug of this library
};

inline const char* name(ErrorCode code) {
  constexpr const char* kNames[] = {"invalid usage", "not implemented",  "timeout",      "aborted",
                                    "remote error",  "mismatched calls", "system error", "internal error"};
  return kNames[static_cast<int>(code)];
}

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// An allocation failed on this rank only.
class NoMemory : public Error {
 public:
  NoMemory(std::size_t bytes, const std::string& purpose)
      : NoMemory("no memory for " + std::to_string(bytes) + " bytes of " + purpose) {}
  explicit NoMemory(const std::string& what) : Error(ErrorCode::System, what) {}
};

template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(code, text.str());
}

#define MPI_GDR_CHECK(condition)                                                                             \
  do {                                                                                                       \
    if (!(condition))                                                                                        \
      ::mpi_gdr::fail(::mpi_gdr::ErrorCode::Internal, __FILE__, ":", __LINE__, ": " #condition " is false"); \
  } while (0)

}  // namespace mpi_gdr
