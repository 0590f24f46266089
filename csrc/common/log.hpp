// One write per line: "host:pid:tid [rank/size] mpi-gdr LEVEL SUBSYSTEM text". Thread-safe.
#pragma once

#include <sstream>
#include <string>

#include "common/env.hpp"

namespace mpi_gdr {

// Until called, lines contain no [rank/size].
void set_log_rank(int rank, int size);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, const char* subsystem, const std::string& text);
// For errors no exception can report: goes to stderr as well if the log goes to a file.
void log_fatal(const std::string& text);

template <typename... Parts>
void log(LogLevel level, const char* subsystem, const Parts&... parts) {
  if (!log_enabled(level)) return;
  std::ostringstream text;
  (text << ... << parts);
  log_line(level, subsystem, text.str());
}

}  // namespace mpi_gdr
