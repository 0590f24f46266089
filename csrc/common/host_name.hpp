// This host, and what files are called after it and this process.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace mpi_gdr {

// Of this host; "" if the system does not tell. Thread-safe.
inline std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// `pattern` with the host's name for each %h, this process's number for each %p, and `rank` for each %r.
inline std::string file_name(std::string pattern, const std::string& rank = "%r") {
  const std::pair<const char*, std::string> marks[] = {
      {"%r", rank}, {"%p", std::to_string(::getpid())}, {"%h", host_name()}};
  for (const auto& [mark, text] : marks)
    for (std::size_t at = 0; (at = pattern.find(mark, at)) != pattern.npos; at += text.size())
      pattern.replace(at, 2, text);
  return pattern;
}

}  // namespace mpi_gdr
