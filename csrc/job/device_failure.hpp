// Failures of operations on a device, whose Work a stream has waited for long ago.
#pragma once

#include "engine/operation.hpp"

namespace mpi_gdr {

class Group;

// A failed group has collectives in graphs. Ends the process, since replays cannot be notified; if the group
// was aborted or MPI_GDR_ASYNC_ERROR=raise, unblocks the device instead.
void captured_group_failed(const Group& group) noexcept;

// Called when an operation has failed, not on the progress thread. Ends the process unless a caller waits,
// the group has not failed or was aborted, or MPI_GDR_ASYNC_ERROR=raise: results are then undefined.
void device_operation_failed(const OperationPtr& operation);

}  // namespace mpi_gdr
