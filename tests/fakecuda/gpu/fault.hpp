// What CUDA forbids ends the process, with the name of the rule.
#pragma once

namespace fakecuda {

// Says on stderr "fakecuda: RULE: ADDRESS" and, on a kernel's stack, which thread of which kernel; aborts.
[[noreturn]] void fault(const char* rule, const void* address = nullptr);

}  // namespace fakecuda
