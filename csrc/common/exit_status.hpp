// Exit statuses with which the library itself ends a process.
#pragma once

namespace mpigdr {

// A thread is stuck in a call that cannot be interrupted, past its deadline. As timeout(1) does.
inline constexpr int kExitStuck = 124;

}  // namespace mpigdr
