#include "common/error.hpp"

namespace mpigdr {

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidUsage:
      return "invalid usage";
    case ErrorCode::NotImplemented:
      return "not implemented";
    case ErrorCode::Timeout:
      return "timeout";
    case ErrorCode::Aborted:
      return "aborted";
    case ErrorCode::Remote:
      return "remote error";
    case ErrorCode::System:
      return "system error";
    case ErrorCode::Internal:
      return "internal error";
  }
  return "unknown error";
}

}  // namespace mpigdr
