#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace mpi_gdr {

// This host's name; "": unknown. Thread-safe.
inline std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// `pattern` with %h replaced by the host's name, %p by this process's id and %r by `rank`.
inline std::string file_name(std::string pattern, const std::string& rank = "%r") {
  const std::pair<const char*, std::string> marks[] = {
      {"%r", rank}, {"%p", std::to_string(::getpid())}, {"%h", host_name()}};
  for (const auto& [mark, text] : marks)
    for (std::size_t at = 0; (at = pattern.find(mark, at)) != pattern.npos; at += text.size())
      pattern.replace(at, 2, text);
  return pattern;
}

}  // namespace mpi_gdr
