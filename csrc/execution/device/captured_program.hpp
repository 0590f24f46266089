// A collective that is recorded into a graph and replayed any number of times: a schedule on memory that the
// devices of a node share, or one that touches no other rank. The host takes no part in a replay: there is no
// operation, no deadline, no comparison of calls.
//
// All lanes run one after the other on one queue, and so do the captured collectives of all groups on a
// device: a graph may run independent branches in sequence, in another order on each rank, and two branches
// that wait for other ranks would then block each other.
//
// Threads: one at a time for each queue.
#pragma once

#include <string>

#include "device/device.hpp"
#include "execution/execution.hpp"
#include "schedule/schedule.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpi_gdr {

// Whether the schedule waits for devices only. If not, `why` says what needs the host.
bool can_be_captured(const Schedule& schedule, std::string& why);

// Submits the schedule to `queue`. `node`: null if !schedule.shared. All ranks replay their graphs in
// the same order, one replay after the other.
void submit_captured(const Schedule& schedule, const Binding& binding, const ipc::DeviceNode* node,
                     DeviceQueue& queue);

}  // namespace mpi_gdr
