// Handles failures of device operations, even long after their wait() has returned.
#pragma once

#include "engine/operation.hpp"

namespace mpi_gdr {

class Group;

// Called when a group with collectives in graphs has failed. Ends the process, since replays cannot be
// notified. If the group was aborted or MPI_GDR_ASYNC_ERROR=raise, releases the replays instead.
void captured_group_failed(const Group& group) noexcept;

// Called when an operation has failed; never on the progress thread. Unblocks the device, with undefined
// results, if a host thread waits, or the group was aborted or has not failed, or MPI_GDR_ASYNC_ERROR=raise.
// Otherwise ends the process when its work on the device has drained, or after 2 s.
void device_operation_failed(const OperationPtr& operation);

}  // namespace mpi_gdr
