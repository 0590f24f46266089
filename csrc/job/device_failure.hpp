// Failures of operations on a device, whose Work a stream has waited for long ago.
#pragma once

#include "engine/operation.hpp"

namespace mpi_gdr {

class Group;

// A group failed while graphs hold its collectives. Ends the process, since a program that goes on replaying
// cannot be notified; if the group was aborted or MPI_GDR_ASYNC_ERROR=raise, unblocks the device instead.
void captured_group_failed(const Group& group) noexcept;

// Called when an operation has failed, not on the progress thread. Ends the process unless a caller waits for
// the operation, its group has not failed or was aborted, or MPI_GDR_ASYNC_ERROR=raise: streams then continue
// with undefined results. With `raise`, the next call on the group raises.
void device_operation_failed(const OperationPtr& operation);

}  // namespace mpi_gdr
