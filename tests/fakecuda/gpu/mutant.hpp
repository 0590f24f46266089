// Mutation testing of the code on the software GPU. FAKECUDA_MUTANT=KIND:PLACE skips one place: fence,
// barrier or volatile (which becomes a weak access) of the PTX, where PLACE is its file and number there,
// "flag_kernels:3"; for host code see cudart/call_site.hpp. FAKECUDA_PLACES names a file that receives each
// executed place once.
#pragma once

#include <string>
#include <string_view>

namespace fakecuda {

// Whether either is set. Read once.
bool mutating();
// Thread-safe.
bool left_out(std::string_view kind, const std::string& place);

}  // namespace fakecuda
