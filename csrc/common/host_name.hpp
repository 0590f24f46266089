#pragma once

#include <unistd.h>

#include <string>

namespace mpigdr {

// Of this host; "" if the system does not tell. Thread-safe.
inline std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace mpigdr
