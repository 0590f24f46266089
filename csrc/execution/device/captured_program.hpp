// A collective that is recorded into a graph and replayed any number of times: a schedule on memory that the
// devices of a node share, or one that touches no other rank. The host has no part in a replay and does not
// hear of it: there is no operation, no deadline, no comparison of calls.
//
// All of it goes on one queue, one lane after the other. What a graph leaves unordered may run in any order,
// one after the other; two lanes that wait for other ranks could then stand on each rank in each other's way.
// For the same reason the captured collectives of all groups on a device share a queue.
//
// Threads: the calls of one queue come from one thread at a time, as the capture does.
#pragma once

#include <string>

#include "device/device.hpp"
#include "execution/execution.hpp"
#include "schedule/schedule.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpi_gdr {

// Whether it can be recorded: what it waits for is a device. If not, `why` says what it needs of the host.
bool can_be_captured(const Schedule& schedule, std::string& why);

// Submits it to `queue`. `node`: null if the schedule is not a shared one. All ranks replay what they have
// recorded on this node in one order, one replay after the other.
void submit_captured(const Schedule& schedule, const Binding& binding, const ipc::DeviceNode* node,
                     DeviceQueue& queue);

}  // namespace mpi_gdr
