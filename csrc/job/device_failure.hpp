// What an operation that failed on a device means for the process: a stream waited for its Work long ago.
#pragma once

#include "engine/operation.hpp"

namespace mpi_gdr {

class Group;

// A group has failed whose collectives are in graphs. Ends the process, for nothing can tell a program that
// goes on to replay them; where that is not wanted, or the group was aborted, lets the device go on.
void captured_group_failed(const Group& group) noexcept;

// Once it has ended with an error, on any thread but the progress thread. Ends the process, unless a caller
// waits for the operation and hears of it, its group was aborted on purpose, or MPI_GDR_ASYNC_ERROR=raise:
// then streams go on with undefined results, and the next call on the group raises.
void device_operation_failed(const OperationPtr& operation);

}  // namespace mpi_gdr
