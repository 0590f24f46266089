// Mutants of host code (gpu/mutant.hpp): one caller of the device library whose stream_wait, flag_write or
// event has no effect. The first two are stream memory operations or the kernels used instead, the third is a
// stream's wait for an event. PLACE is the call's return address, in bytes from the start of its program or
// library: "stream_wait:test_cuda_peers+12ab0".
#pragma once

#include <string_view>

namespace fakecuda {

bool call_left_out(std::string_view kind);
// The same, for a kernel that waits for a flag or writes one.
bool launch_left_out(std::string_view kernel);

}  // namespace fakecuda
