// Exit statuses with which the library itself ends a process.
#pragma once

namespace mpigdr {

// A thread is stuck in a call that cannot be interrupted, past its deadline. As timeout(1) does.
inline constexpr int kExitStuck = 124;
// An operation on a device's memory failed after the program had gone on.
inline constexpr int kExitDeviceFailure = 123;

}  // namespace mpigdr
