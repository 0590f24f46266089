// Exit statuses used when the library itself ends a process.
#pragma once

namespace mpi_gdr {

// An uninterruptible call cannot return or passed its deadline, or a thread had no memory. As timeout(1).
inline constexpr int kExitStuck = 124;
// An operation on device memory failed after the program had continued.
inline constexpr int kExitDeviceFailure = 123;
// MPI_GDR_ORPHAN_GRACE has passed since this rank's torchrun agent ended.
inline constexpr int kExitOrphan = 122;
// The program ended with status 0 although a group had failed or calls of a group did not match.
inline constexpr int kExitGroupFailed = 121;

}  // namespace mpi_gdr
