// Mutants of the host's code (gpu/mutant.hpp): one place of it, the caller of the device library, whose
// stream_wait, flag_write or event comes to nothing. The first two are stream memory operations or the
// kernels in their stead, the third a stream's wait for an event. PLACE is where the call returns to, as
// bytes from the beginning of its program or library: "stream_wait:test_cuda_peers+12ab0".
#pragma once

#include <string_view>

namespace fakecuda {

bool call_left_out(std::string_view kind);
// The same, of a kernel that waits for a flag or writes one.
bool launch_left_out(std::string_view kernel);

}  // namespace fakecuda
