// What this process brings to the meeting of a new group.
#pragma once

#include <string>
#include <vector>

#include "engine/member.hpp"

namespace mpigdr::torch_binding {

// This process, with `settings` and `ticket`.
Member this_member(std::vector<SharedSetting> settings, std::string ticket);

}  // namespace mpigdr::torch_binding
