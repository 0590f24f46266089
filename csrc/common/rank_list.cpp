#include "common/rank_list.hpp"

#include <algorithm>
#include <cstddef>

namespace mpigdr {

std::string rank_list(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 32;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += ", ... (" + std::to_string(ranks.size()) + " in all)";
  return text;
}

}  // namespace mpigdr
