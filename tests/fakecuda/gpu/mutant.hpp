// A software GPU that leaves something out: do the tests of what runs on it notice? One place at a time, as
// FAKECUDA_MUTANT=KIND:PLACE says. Of the PTX: fence, barrier, and volatile (which is no more than a weak
// access then); PLACE is its file and which one it is there, "flag_kernels:3". Of the host's code:
// cudart/call_site.hpp. FAKECUDA_PLACES names a file that is told of all places that are come to, once each.
#pragma once

#include <string>
#include <string_view>

namespace fakecuda {

// Either is set. They are read once.
bool mutating();
// Thread-safe.
bool left_out(std::string_view kind, const std::string& place);

}  // namespace fakecuda
