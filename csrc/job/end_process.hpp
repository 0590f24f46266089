#pragma once

#include <unistd.h>

#include <string>

#include "bootstrap/shared_memory.hpp"
#include "common/log.hpp"

namespace mpi_gdr {

// Logs `why`. Runs no exit handlers: a thread may be stuck in a library that they need.
[[noreturn]] inline void end_process(int status, const std::string& why) {
  log_fatal(why);
  unlink_mpich_shared_memory();
  ::_exit(status);
}

}  // namespace mpi_gdr
