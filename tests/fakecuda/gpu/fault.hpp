// Violations of CUDA's rules end the process.
#pragma once

namespace fakecuda {

// Prints "fakecuda: RULE: ADDRESS" and, on a kernel's stack, the thread and kernel to stderr, then aborts.
[[noreturn]] void fault(const char* rule, const void* address = nullptr);

}  // namespace fakecuda
