// Exit statuses with which the library itself ends a process.
#pragma once

namespace mpi_gdr {

// A thread is stuck in a call that cannot be interrupted, past its deadline. As timeout(1) does.
inline constexpr int kExitStuck = 124;
// An operation on a device's memory failed after the program had gone on.
inline constexpr int kExitDeviceFailure = 123;
// The torchrun agent that started this rank has ended.
inline constexpr int kExitOrphan = 122;
// A group had failed, and the program ended with status 0 as if nothing had happened.
inline constexpr int kExitGroupFailed = 121;

}  // namespace mpi_gdr
