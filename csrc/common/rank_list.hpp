#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace mpi_gdr {

// "1, 3, 7"; beyond 32 ranks the first 32, then "... (40 in all)".
inline std::string rank_list(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 32;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += ", ... (" + std::to_string(ranks.size()) + " in all)";
  return text;
}

}  // namespace mpi_gdr
