#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace mpi_gdr {

// "0", "1000", "64K", "1M", "2G"; "inf" for the maximum.
inline std::string bytes_text(std::uint64_t bytes) {
  if (bytes == std::numeric_limits<std::uint64_t>::max()) return "inf";
  for (const auto& [shift, unit] : {std::pair(30, 'G'), {20, 'M'}, {10, 'K'}})
    if (bytes > 0 && bytes % (std::uint64_t{1} << shift) == 0) return std::to_string(bytes >> shift) + unit;
  return std::to_string(bytes);
}

// Decimal digits and an optional K, M or G in any case. Returns nullopt for other text, and for 2^60 or more.
inline std::optional<std::uint64_t> bytes_of(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 18 || digits + 1 < text.size()) return std::nullopt;
  const std::uint64_t value = std::stoull(std::string(text.substr(0, digits)));
  if (digits == text.size()) return value;
  const std::size_t unit = std::string_view("KMG").find(static_cast<char>(std::toupper(text[digits])));
  const std::size_t shift = 10 * (unit + 1);
  if (unit == std::string_view::npos || value >> (60 - shift)) return std::nullopt;
  return value << shift;
}

}  // namespace mpi_gdr
