// Ranks in messages.
#pragma once

#include <string>
#include <vector>

namespace mpigdr {

// "1, 3, 7"; of more than 32 the first 32, then "... (40 in all)".
std::string rank_list(const std::vector<int>& ranks);

}  // namespace mpigdr
