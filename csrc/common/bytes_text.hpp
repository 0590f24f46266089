// Numbers of bytes as people write them in tables and variables.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace mpigdr {

// "0", "1000", "64K", "1M", "2G"; "inf" for the largest number there is.
inline std::string bytes_text(std::uint64_t bytes) {
  if (bytes == std::numeric_limits<std::uint64_t>::max()) return "inf";
  for (const auto& [shift, unit] : {std::pair(30, 'G'), {20, 'M'}, {10, 'K'}})
    if (bytes > 0 && bytes % (std::uint64_t{1} << shift) == 0) return std::to_string(bytes >> shift) + unit;
  return std::to_string(bytes);
}

}  // namespace mpigdr
